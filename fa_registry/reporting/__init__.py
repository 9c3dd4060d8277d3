"""Reports of an audit: the claims it supports, and the pages, figures and files that show them."""
