"""Resources that jobs request, and a check that all jobs can use the store."""

from __future__ import annotations

import math
import platform
import re
from urllib.parse import parse_qs, urlsplit

from fa_registry.errors import StoreError, UnknownName
from fa_registry.studies import executors
from fa_registry.studies.executors.base import Capacity, ClusterOptions, JobResources
from fa_registry.text_safety import escape_control
from fa_registry.tracking.store import sqlite_path

MOST_CPUS = 1024
SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT]i?B)")
UNITS = {
    f"{letter}{end}": base**power for power, letter in enumerate("KMGT", 1) for end, base in (("B", 1000), ("iB", 1024))
}
ONE_MACHINE = (
    "A sqlite file is only for one machine: two machines that write to the file damage it. On all machines, use --store with "
    "the address of one MLflow server or one PostgreSQL database (docs/many-machines.md)"
)


def asked_resources(executor: str, cluster: ClusterOptions, device: str, problems: list[str]) -> JobResources:
    """Return the resources that each job requests, as the user typed them; append errors to `problems`."""
    cpus = f"a whole number up to {MOST_CPUS}, or a fraction such as 0.5"
    gpus = "a fraction of one GPU such as 0.125, or 1 for one GPU"
    resources = JobResources(
        device=device,
        address=str(cluster.address),
        cpus=_number("cpus_per_run", cluster.cpus_per_run or 1, MOST_CPUS, cpus, problems),
        gpus=_number("gpus_per_run", cluster.gpus_per_run or 0, 1, gpus, problems),
        memory=_bytes(str(cluster.memory), problems),
    )
    try:
        problems += executors.CATALOG.get(executor or "local").problems(resources)
    except UnknownName as error:
        problems.append(f"executor: {error}")
    return resources


def _number(name: str, typed: str | float, limit: float, expected: str, problems: list[str]) -> float:
    try:
        number = float(typed)
    except ValueError:
        number = math.nan
    if (0 < number <= limit and (number <= 1 or number == int(number))) or typed == 0:
        return number
    problems.append(f"{name}: expected {expected}; found {typed!r}")
    return 0


def _bytes(typed: str, problems: list[str]) -> int:
    """Return the number of bytes, or 0 if `typed` is empty or invalid."""
    size = SIZE.fullmatch(typed)
    if typed and not size:
        problems.append(f"memory: expected a number with a unit, such as 4GiB or 500MB; found {typed!r}")
    return int(float(size[1]) * UNITS[size[2]]) if size else 0


def check_reach(store: str, capacity: Capacity) -> None:
    """Raise StoreError if jobs on the executor's machines cannot use the store safely.

    A sqlite file is not safe. A store whose address contains a password is not safe either.
    """
    if capacity.machines is None:
        return
    other_machines = sorted(capacity.machines - {platform.node()})
    if other_machines and sqlite_path(store):
        raise StoreError(
            f"store {store}: the executor starts jobs on other machines ({', '.join(other_machines[:3])}). {ONE_MACHINE}"
        )
    address = urlsplit(store)
    if address.password or "password" in parse_qs(address.query):
        displayed = escape_control(store).partition("?")[0]
        raise StoreError(
            f"store {displayed}: the address contains a password. Every job would contain this address, and other users could read "
            "the password on disks and web pages. Remove the password from the address and set these variables on every machine: "
            "PGPASSFILE or PGPASSWORD for PostgreSQL, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD for an MLflow server "
            "(docs/many-machines.md)"
        )
