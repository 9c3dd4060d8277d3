"""Judging: rules as versioned data, one engine, one verdict. Knows numbers, no tensor."""
