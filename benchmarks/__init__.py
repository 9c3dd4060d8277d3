"""Measured comparisons, each printing ratios: `python -m benchmarks [--json]`."""
