"""Studies: a study.toml is expanded to run specifications, and an executor runs them."""
