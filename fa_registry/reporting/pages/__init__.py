"""What stands on each page: one module a template, its context first."""
