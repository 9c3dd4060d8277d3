"""A finished audit with its runs in one file that proves itself: how it is packed, what it holds, how it is held against itself."""
