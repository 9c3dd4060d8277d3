"""Bundles: a finished audit with its runs in one file that can be verified."""
