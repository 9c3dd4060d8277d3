"""Run the command `fa-registry` as `python -m fa_registry`."""

from fa_registry.cli import main

main(prog_name="fa-registry")
