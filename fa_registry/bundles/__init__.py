"""Bundles: a finished audit and its runs in one file that can be verified."""
