"""From contexts to text: filters, escaping, the environment and its sandbox."""
