"""Every picture of the pages, drawn once and written as PNG within the page."""
