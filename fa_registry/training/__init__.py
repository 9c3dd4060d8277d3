"""The training loop, its measurements, and the checks that an audit recomputes."""
