"""The figures of the pages, which are embedded as PNG images."""
