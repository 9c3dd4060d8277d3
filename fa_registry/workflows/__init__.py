"""The commands of the package, one module per command, used by the command line and by Python."""
