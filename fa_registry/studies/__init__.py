"""Studies: expansion of a study.toml to specifications, and executors that train these."""
