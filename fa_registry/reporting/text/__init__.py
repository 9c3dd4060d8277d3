"""Conversion of template variables to text: filters, escaping, environment and sandbox."""
