"""What can be done with a registry, one module a task: for the command line and for Python."""
