"""Commands of the package; each command has its own module.

The command line and Python callers use the same modules. If arguments are invalid, a command raises InvalidFields before it
writes anything. The error lists all invalid arguments.
"""
