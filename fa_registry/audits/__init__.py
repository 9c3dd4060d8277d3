"""Audits: runs are selected and judged, and the report is published.

A report is also compared, verified and rendered again.
"""
