"""Studies: a study.toml becomes run specs, and an executor runs them."""
