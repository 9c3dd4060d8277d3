"""Contents of the pages: one module per template, with the context class of the template."""
