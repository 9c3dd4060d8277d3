"""The training loop and its measurements."""
