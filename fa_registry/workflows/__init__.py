"""Commands of the package, with one module per command.

The command line and Python callers use the same modules. If arguments are invalid, a command raises InvalidFields before it
writes anything. The error lists all invalid arguments.
"""
