"""Studies: a study.toml is expanded to specifications, which an executor trains."""
