"""The training loop, its measurements, and the checks of an audit."""
