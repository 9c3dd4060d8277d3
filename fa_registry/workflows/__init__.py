"""The commands of the package, one module per command, used by the command line and by Python.

If arguments are invalid, a command raises InvalidFields, which lists all of them, before it writes anything.
"""
