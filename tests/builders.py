"""Small, complete records for tests that need some: one place to build them, every figure set by the test that cares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fa_registry import bundled_files
from fa_registry.protocol.evidence_rules import PROVING
from fa_registry.protocol.rules import load_edition
from fa_registry.records import (
    CHANCE,
    CLASSES,
    Check,
    Integrity,
    Measurements,
    Reading,
    RunRecord,
    RunSpec,
    SampleScores,
    Series,
)
from fa_registry.tracking import schema

SITE_0 = "growth starts at site 1"
PROVEN = Integrity("verified", (), tuple(Check(subject, "agrees") for subject in PROVING))
TEST_SET = {CHANCE: 0.1, CLASSES: 10, "test_samples": 10_000}  # one test sample is .01 percentage points
BEST_P = 1 / 21  # the least rank p-value of 20 fresh draws


def verdict_tag(edition: str) -> str:
    """The tag of a shipped edition's verdict, with the start of its digest."""
    return schema.verdict_tag(load_edition(edition).reference)


def edition_text(name: str, quantity: str, threshold: float, **fields: str) -> str:
    """An edition of one rule D1, whose code in `fields` may be another; `unit`, `take` and `fires` too."""
    rule = {"code": "D1", "title": "limit", "take": "scalar", "fires": "above", "unit": "ratio"} | fields
    lines = [f'{field} = "{value}"' for field, value in ({"quantity": quantity} | rule).items()]
    head = f'name = "{name}"\ntitle = "By hand"\nsource = "a test"\nfail_if = [["{rule["code"]}"]]\n\n[[rule]]\n'
    return head + "\n".join([*lines, f"threshold = {threshold!r}", 'source = "a test"', 'rationale = "a test"', ""])


def changed_edition(folder: Path, *replacements: tuple[str, str], edition: str = "2026-05") -> str:
    """The path of a copy of a shipped edition, named `mine`, with other text in the place of the first one that is alike."""
    text = (bundled_files.editions() / f"{edition}.toml").read_text(encoding="utf-8")
    for old, new in ((f'name = "{edition}"', 'name = "mine"'), *replacements):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return str(folder / "mine.toml")


def spec(**changes: Any) -> RunSpec:
    base = RunSpec("dfa", "resmlp", "digits", seed=42, epochs=3, architecture_options={"d_hidden": 16, "num_blocks": 2})
    return replace(base, **changes)


def reading(value: float | None, reason: str = "not measured") -> Reading:
    return Reading.of(value) if value is not None else Reading(None, reason)


def measurements(
    growth: float | None = 2.0,
    g_norm: float | None = 1.0,
    accuracy: float | None = 0.9,
    gain: float | None = 0.75,
    fidelity: float | None = 1.0,
    stability: float | None = 0.1,
    gamma: tuple[float | None, ...] = (0.5, 0.6, 0.7),
    gamma_null_p: tuple[float | None, ...] = (BEST_P,) * 3,
    growth_init: float | None = 2.0,
    gamma_deep_mean: float | None = 0.65,
    gamma_centred_mid: float | None = 0.65,
) -> Measurements:
    """Two blocks; `growth` is the last one's (the first has 1, or none where growth is None)."""
    sites = {
        "h_norm": (Reading(1.0), Reading(1.0), reading(growth)),
        "growth": (Reading(None, SITE_0), reading(growth and 1.0), reading(growth)),
        "growth_init": (*[reading(growth_init and 1.0)] * 2, reading(growth_init)),
        "g_norm": tuple([reading(g_norm)] * 3),
        "g_norm_mean_ce": tuple([reading(None if g_norm is None else g_norm / 128)] * 3),
        "gain": tuple([reading(gain)] * 3),
        "fidelity": tuple([reading(fidelity)] * 3),
        "gamma": tuple(reading(value) for value in gamma),
        "gamma_null_p": tuple(reading(value) for value in gamma_null_p),
    }
    scalars = {"accuracy": reading(accuracy), "growth_max": reading(growth), "stability_mid": reading(stability)}
    scalars["gamma_deep_mean"] = reading(gamma_deep_mean)
    scalars["gamma_centred_mid"] = reading(gamma_centred_mid)
    return Measurements(sites, scalars, TEST_SET)


def series(*values: float | None) -> Series:
    return Series(reading(value) for value in values)


def record(
    run_id: str = "r",
    measured: Measurements | None = None,
    status: str = "complete",
    trajectory: Mapping[str, Series] | None = None,
    **changes: Any,
) -> RunRecord:
    """A run of the base spec with `changes` to the spec."""
    return RunRecord(
        run_id,
        f"run {run_id}",
        "tiny setting",
        status,
        spec(**changes),
        measured or measurements(),
        trajectory or {},
        PROVEN,
    )


def frozen(run_id: str = "f", accuracy: float | None = 0.5, **changes: Any) -> RunRecord:
    return record(run_id, measurements(accuracy=accuracy), method="bp", control="frozen", **changes)


def over_seeds(accuracies: Mapping[int, float | None], controls: Mapping[int, float | None]) -> list[RunRecord]:
    """One run a seed (`r42`) with its accuracy, then one frozen control a seed (`f42`)."""
    runs = [record(f"r{seed}", measurements(accuracy=value), seed=seed) for seed, value in accuracies.items()]
    runs += [frozen(f"f{seed}", value, seed=seed) for seed, value in controls.items()]
    return [answered(run) for run in runs]


def answered(run: RunRecord, samples: int | None = None) -> RunRecord:
    """The run with the answers of its accuracy: the first test samples are right, for every run the same ones."""
    count, accuracy = samples or TEST_SET["test_samples"], run.measurements.scalars["accuracy"].value
    scores = (
        {} if accuracy is None else {"accuracy": SampleScores.of("right", np.arange(count) < round(accuracy * count))}
    )
    conventions = {**run.measurements.conventions, "test_samples": count}
    return replace(run, measurements=replace(run.measurements, sample_scores=scores, conventions=conventions))
