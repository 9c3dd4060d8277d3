"""Conversion to text: filters, escaping, template environment and sandbox."""
