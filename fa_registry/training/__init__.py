"""The one training loop of every method, what it measures on the way, and what an audit recomputes."""
