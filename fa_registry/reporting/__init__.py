"""The reports of an audit: claims, pages, figures and machine-readable files."""
