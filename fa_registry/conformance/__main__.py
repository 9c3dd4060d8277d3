"""Command `python -m fa_registry.conformance METHOD`, which prints the conformance table of a method.

The exit code is 1 if a property fails.
"""

from __future__ import annotations

import argparse
import sys

from fa_registry.conformance.suite import check_method
from fa_registry.errors import RegistryError
from fa_registry.output_streams import outlive_readers, print_warnings


def main(arguments: list[str] | None = None) -> int:
    """Print one line per property, and return the exit code."""
    print_warnings()
    outlive_readers()
    parser = argparse.ArgumentParser(
        prog="python -m fa_registry.conformance",
        description="Check whether a method's credit has the properties that its card declares.",
    )
    parser.add_argument(
        "method",
        help="name of a method in the catalog; the catalog contains your method if the method's entry point is installed",
    )
    parser.add_argument(
        "--architecture",
        action="append",
        help="name of an architecture, can be given several times; default: all architectures that the method's card supports",
    )
    parser.add_argument("--task", default="", help="name of a task; default: all tasks that the method's card lists")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        results = check_method(options.method, options.architecture, options.seed, task=options.task)
    except RegistryError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    width = max(len(result.property) for result in results)
    for result in results:
        print(f"{result.outcome:<14}  {result.property:<{width}}  {result.detail}")
    return int(any(result.outcome == "fail" for result in results))


if __name__ == "__main__":
    sys.exit(main())
