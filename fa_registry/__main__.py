"""`python -m fa_registry` is the command `fa-registry`."""

from fa_registry.cli import main

main(prog_name="fa-registry")
