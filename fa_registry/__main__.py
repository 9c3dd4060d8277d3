"""Entry point of `python -m fa_registry`, which runs the command `fa-registry`."""

from fa_registry.cli import main

main(prog_name="fa-registry")
