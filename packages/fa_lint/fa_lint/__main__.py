"""Entry point for `python -m fa_lint`."""

from fa_lint.command import main

if __name__ == "__main__":
    main()
