"""Judging of runs: rules as versioned data, one engine, one verdict. It uses numbers, no tensors."""
