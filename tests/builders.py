"""Small, complete records for tests that need some: one place to build them, every figure set by the test that cares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fa_registry.records import Integrity, Measurements, Reading, RunRecord, RunSpec


def spec(**changes: Any) -> RunSpec:
    base = RunSpec("dfa", "resmlp", "digits", seed=42, epochs=3, architecture_options={"d_hidden": 16, "num_blocks": 2})
    return replace(base, **changes)


def reading(value: float | None, reason: str = "not measured") -> Reading:
    return Reading.of(value) if value is not None else Reading(None, reason)


def measurements(growth: float | None = 2.0, g_norm: float | None = 1.0, accuracy: float | None = 0.9) -> Measurements:
    """Two blocks; `growth` is the last one's (the first has 1, or none where growth is None)."""
    sites = {
        "h_norm": (Reading(1.0), Reading(1.0), reading(growth)),
        "growth": (Reading(None, "growth starts at site 1"), reading(growth and 1.0), reading(growth)),
        "g_norm": tuple([reading(g_norm)] * 3),
        "g_norm_mean_ce": tuple([reading(None if g_norm is None else g_norm / 128)] * 3),
    }
    return Measurements(sites, {"accuracy": reading(accuracy), "growth_max": reading(growth)})


def record(
    run_id: str = "r", measured: Measurements | None = None, status: str = "complete", **changes: Any
) -> RunRecord:
    """A run of the base spec with `changes` to the spec."""
    return RunRecord(
        run_id,
        f"run {run_id}",
        "tiny setting",
        status,
        spec(**changes),
        measured or measurements(),
        {},
        Integrity("verified"),
    )


def frozen(run_id: str = "f", accuracy: float | None = 0.5, **changes: Any) -> RunRecord:
    return record(run_id, measurements(accuracy=accuracy), method="bp", control="frozen", **changes)
