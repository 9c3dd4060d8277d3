"""Made-up runs for the tests of the pages: with few metrics, diverged, and with every metric there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fa_registry.metrics import HEADLINE_GAMMA
from fa_registry.records import (
    CHANCE,
    RESIDUAL,
    STREAM,
    Integrity,
    Measurements,
    Reading,
    RunRecord,
    RunSpec,
    SampleScores,
    Series,
)
from tests.builders import PROVEN

HOSTILE = "<script>alert(1)</script>{{7*7}}"
TRACEBACK = f"Traceback (most recent call last):\n  RuntimeError: </pre></details>{HOSTILE}"
SITES, EPOCHS, SEEDS, THREE_SEEDS = 5, 30, (42, 123), (42, 123, 456)
NO_FEEDBACK = Reading(None, "the feedback file is missing: credit cannot be recomputed")
GAMMA_SCALARS = (
    "gamma_deep_mean",
    "gamma_spread",
    *(
        f"gamma_{scope}_{sites}_{samples}"
        for scope in ("deep", "all")
        for sites in ("mean", "median")
        for samples in ("mean", "median")
    ),
)
CARDS = {
    "methods/dfa": {
        "name": "dfa",
        "rule": "c_l = e B_lᵀ, B_l fixed and random",
        "citation": "Nøkland 2016",
        "bibtex": "@inproceedings{nokland2016direct,\n  title={Direct feedback alignment provides learning}\n}",
        "equations": "c_l = e B_lᵀ, B_l (D_l, C) with entries N(0, 1/C)",
        "deviations": ["the credit acts on the residual stream after block l", "the embedding shares B_1 with block 1"],
        "feedback": "B_l (D, C) with independent entries N(0, 1/C), fixed",
        "has_feedback": True,
        "gamma_reference": "bp",
        "exact_sites": "none",
    },
    "methods/bp": {
        "name": "bp",
        "rule": "c_l = g_l",
        "citation": "Rumelhart, Hinton & Williams 1986",
        "bibtex": "",
        "equations": "c_l = g_l",
        "deviations": [],
        "feedback": "none",
        "has_feedback": False,
        "gamma_reference": "none",
        "exact_sites": "all",
    },
    "datasets/digits": {
        "line": "UCI handwritten digits on a 12×12 canvas",
        "source": "scikit-learn",
        "licence": "CC BY 4.0",
        "splits": "1,437 train, 360 test",
        "normalisation": "mean and std",
        "augmentation": "a fresh offset",
        "sha256": "ab" * 32,
    },
    "architectures/resmlp": {"line": "Linear → L pre-LN residual blocks → LN → Linear", "source": "arXiv 2606.21126"},
}

CONVENTIONS = {"gamma_null_draws": 20, "stability_batches": 8, "rho_directions": 32}
CONVENTIONS |= {CHANCE: 0.1, STREAM: RESIDUAL, "test_samples": 1000}
PROVENANCE = {
    "commit": "0123abc",
    "python": "3.11.7",
    "fa_registry": "0.1.0",
    "versions": {"torch": "2.8.0"},
    "hardware": {"machine": "x86_64", "cpu": "Xeon", "cores": 2, "gpu": ""},
    "threads": 1,
    "parameters": 566026,
    "dataset_digest": "cd" * 32,
}


def _curve(start: float, end: float, log: bool = True) -> Series:
    steps = np.linspace(0, 1, EPOCHS + 1) ** 0.6
    values = start * (end / start) ** steps if log else start + (end - start) * steps
    return Series(Reading.of(value) for value in values)


def _spec(method: str, seed: int, control: str = "none") -> RunSpec:
    options = {"d_hidden": 256, "num_blocks": SITES - 1, "residual": True, "terminal_ln": True, "w2_std": 0.01}
    return RunSpec(method, "resmlp", "digits", seed, EPOCHS, architecture_options=options, control=control)


def _run_id(spec: RunSpec) -> str:
    return spec.identity[:32]


def _measurements(seed: int, accuracy: float, scale: float, gradient: float, gamma: float) -> Measurements:
    wiggle = 1 + 0.01 * (seed % 7)
    growth = (scale * wiggle) ** (1 / (SITES - 1))
    hidden = tuple(Reading(16.0 * growth**site) for site in range(SITES))
    growths = tuple(Reading(growth * (1 + 0.01 * site)) for site in range(1, SITES))
    per_sample = tuple(Reading(gradient * 1.5 ** (SITES - 1 - site)) for site in range(SITES))
    gammas = tuple(Reading(gamma * wiggle * (1 - 0.1 * site)) for site in range(SITES))
    sites = {
        "h_norm": hidden,
        "growth": (Reading(None, "site 0 has no block before it"), *growths),
        "growth_init": tuple(Reading(growth**site) for site in range(SITES)),
        "g_norm": per_sample,
        "g_norm_mean_ce": tuple(Reading(reading.value / 128) for reading in per_sample),
        "gain": tuple(Reading(reading.value * 1.3) for reading in per_sample),
        "fidelity": (Reading(0.9999996),) * SITES,
        "gamma": gammas,
        "gamma_batch": gammas,
        "norm_ratio": (Reading(3.2e4),) * SITES,
    }
    headline = {"h_L": hidden[-1], "g_L": per_sample[-1], "growth_max": growths[-1], "accuracy": Reading(accuracy)}
    aggregates = dict.fromkeys(GAMMA_SCALARS, Reading(gamma * wiggle * 0.75))
    largest = Reading(growth ** (SITES - 1))
    scalars = {**headline, **aggregates, "fidelity_min": Reading(0.9999996), "growth_init_max": largest}
    right = np.random.default_rng(1).permutation(1000) < round(1000 * accuracy)  # in one order for every run: nested
    cosines = aggregates[HEADLINE_GAMMA].value + 0.1 * np.linspace(-1, 1, 128)
    scores = {"accuracy": SampleScores.of("right", right), HEADLINE_GAMMA: SampleScores.of("cosine", cosines)}
    return Measurements(sites, scalars, {"eval_samples": 128, "threads": 1}, sample_scores=scores)


def _trajectory(measurements: Measurements) -> dict[str, Series]:
    final = {name: reading.value for name, reading in measurements.scalars.items()}
    return {
        "h_L": _curve(16.0, final["h_L"]),
        "g_L": _curve(0.9, final["g_L"]),
        "g_norm_mean_ce_L": _curve(0.9 / 128, final["g_L"] / 128),
        "growth_max": _curve(1.01, final["growth_max"]),
        "growth_init_max": _curve(1.0, final["growth_init_max"]),
        "accuracy": _curve(0.1, final["accuracy"], log=False),
    }


def make_record(
    method: str, seed: int, accuracy: float, scale: float, gradient: float, gamma: float, control: str = "none"
) -> RunRecord:
    """scale: ‖h_L‖/‖h_0‖; gradient: ‖g_L‖ per sample; gamma: at site 0."""
    spec = _spec(method, seed, control)
    measurements = _measurements(seed, accuracy, scale, gradient, gamma)
    feedback = {"distribution": "N(0, 1/C)", "seed": seed, "sha256": f"{seed:064x}", "tensors": {"B_01": [256, 10]}}
    return RunRecord(
        run_id=_run_id(spec),
        name=f"{spec.method_label}-{seed}",
        setting="digits · resmlp L=4 D=256 · 30 epochs",
        status="complete",
        spec=spec,
        measurements=measurements,
        trajectory=_trajectory(measurements),
        integrity=PROVEN,
        feedback=feedback if method == "dfa" and control == "none" else {},
        provenance={**PROVENANCE, "dirty": seed == 123},
    )


def without_feedback(record: RunRecord) -> RunRecord:
    """The same run after its feedback file was deleted."""
    sites = {
        **record.measurements.sites,
        **dict.fromkeys(("gamma", "gamma_batch", "norm_ratio"), (NO_FEEDBACK,) * SITES),
    }
    scalars = {**record.measurements.scalars, **dict.fromkeys(GAMMA_SCALARS, NO_FEEDBACK)}
    integrity = Integrity("unverifiable", ("feedback/state.safetensors is missing",))
    scores = {"accuracy": record.measurements.sample_scores["accuracy"]}
    measurements = dataclasses.replace(record.measurements, sites=sites, scalars=scalars, sample_scores=scores)
    return dataclasses.replace(record, measurements=measurements, feedback={}, integrity=integrity)


def diverged(record: RunRecord) -> RunRecord:
    """The same run, its norms not finite from epoch 12 on."""
    infinite = Reading.of(float("inf"))
    first = record.measurements.sites["growth"][0]
    sites = {**record.measurements.sites, "h_norm": (infinite,) * SITES, "growth": (first, *(infinite,) * (SITES - 1))}
    scalars = {**record.measurements.scalars, "h_L": infinite, "growth_max": infinite}
    trajectory = {
        name: (Series([*row[:12], *[infinite] * (len(row) - 12)]) if name in ("h_L", "growth_max") else row)
        for name, row in record.trajectory.items()
    }
    return dataclasses.replace(
        record,
        status="diverged",
        name=HOSTILE,
        trajectory=trajectory,
        measurements=dataclasses.replace(record.measurements, sites=sites, scalars=scalars),
    )


# Metrics since 0.2: site metric → (its value at site 0, what it gains a site).
NEWER = {
    **dict.fromkeys(("stability", "rho", "rho_samples", "rho_absolute", "rho_absolute_samples"), (0.08, 0.01)),
    **dict.fromkeys(("rho_bp", "rho_bp_samples"), (0.997, 0.0)),
    **dict.fromkeys(("rho_random", "rho_random_samples", "gamma_null_mean"), (0.004, -0.002)),
    "gamma_null_std": (0.022, 0.0),
    "gamma_null_p": (0.047, 0.0),
    "gamma_block_input": (0.016, 0.2),
    **dict.fromkeys(("nudge", "nudge_rms"), (-5e-5, 0.0)),
    "nudge_bp": (-2e-3, 0.0),
}
DRIFTS = {"embed.weight": 0.4, "blocks.0.w1.weight": 3.1, "blocks.1.w1.weight": 2.2, "blocks.2.w1.weight": 1.9}
DRIFTS |= {"blocks.3.w1.weight": 1.4, "out_ln.weight": 0.05, "out_head.weight": 0.9}


def full(record: RunRecord, scalars: dict[str, float] | None = None, **sites: Sequence[float]) -> RunRecord:
    """The record with every metric there is; scalars, sites: values that replace its own, site by site."""
    measured = record.measurements
    newer = {name: tuple(Reading(at + step * site) for site in range(SITES)) for name, (at, step) in NEWER.items()}
    absent = Reading(None, "only the credit bridge has one")
    newer |= {"bridge_residual": (absent,) * SITES, "costate_cosine": (absent,) * SITES}
    newer |= {name: tuple(map(Reading, values)) for name, values in sites.items()}
    several = {"stability_mid": 0.1, "gamma_block_input_mean": 0.4, "feature_drift_blocks": 2.3, "blocks_trained": 4.0}
    several |= {f"feature_drift/{name}": value for name, value in DRIFTS.items()} | (scalars or {})
    measurements = dataclasses.replace(
        measured,
        sites={**measured.sites, **newer},
        scalars={**measured.scalars, **{name: Reading(value) for name, value in several.items()}},
        conventions={**measured.conventions, **CONVENTIONS},
    )
    return dataclasses.replace(record, measurements=measurements)
