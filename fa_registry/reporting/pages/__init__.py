"""The contents of each page: one module per template, its context class first."""
