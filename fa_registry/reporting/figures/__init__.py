"""Figures of the pages, embedded as PNG images."""
