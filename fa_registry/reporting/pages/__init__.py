"""Contents of the pages: one module per template, with its context class."""
