"""Telling the result: what may be claimed of an audit, and every page, figure and file that says so."""
