"""The training loop of all methods, its measurements, and the checks that an audit recomputes."""
