"""Made-up runs that look like logged ones: four blocks, 100 epochs, every quantity of the protocol; equal for equal seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from fa_registry.records import Integrity, Measurements, Reading, RunRecord, RunSpec, Series

BLOCKS, EPOCHS, SEEDS = 4, 100, (42, 123, 456)
WIDE_METHODS, WIDE_SEEDS = 24, (1, 2, 3, 4, 5)
ROUND = 125  # runs in 17 settings: a wide one with ten methods, and 16 of dfa beside its frozen control
# method -> ‖h_L‖/‖h_0‖, ‖g_L‖ per sample, Γ, accuracy: about the published ones
SCENES = {
    "bp": (3.0, 0.05, 1.0, 0.615),
    "fa": (1e3, 1.1e-4, 0.25, 0.401),
    "dfa": (3e7, 6e-6, 0.10, 0.306),
    "ep": (60.0, 1e-2, 0.2, 0.316),
    "state_bridge": (30.0, 1e-3, 0.05, 0.205),
    "credit_bridge": (40.0, 2e-3, 0.07, 0.289),
    "frozen": (1.02, 0.4, 0.0, 0.349),
}
PENALISED = ("bp", "dfa", "state_bridge")
ABOUT = {  # site quantity -> its typical size, where it is not the scene's
    **dict.fromkeys(("fidelity", "fidelity_batch", "rho_bp", "rho_bp_samples"), 0.995),
    **dict.fromkeys(("stability", "rho", "rho_samples", "rho_absolute", "rho_absolute_samples"), 0.08),
    **dict.fromkeys(("rho_random", "rho_random_samples", "gamma_null_mean", "gamma_null_std"), 0.005),
    **dict.fromkeys(("nudge", "nudge_rms", "nudge_bp"), -1e-4),
    **dict.fromkeys(("gamma_null_p", "gamma_batch", "gamma_block_input"), 0.3),
    "norm_ratio": 3e4,
}
DRIFT = (
    "embed.weight",
    "out_head.weight",
    *(f"blocks.{block}.w{layer}.weight" for block in range(4) for layer in (1, 2)),
)
AGGREGATES = [
    f"gamma_{scope}_{a}_{b}" for scope in ("deep", "all") for a in ("mean", "median") for b in ("mean", "median")
]
FRACTIONS = ("gamma_deep_mean", "fidelity_L", "fidelity_min", "accuracy")
GROWING = (
    *("h_L", "growth_max", "growth_init_max", "g_L", "g_norm_mean_ce_L", "gain_L", "g_norm_L", "loss_train", "penalty"),
)


def registry(count: int, seed: int = 0) -> Iterator[RunRecord]:
    """`count` runs, round after round of 125 in 17 settings; the width of the network tells the rounds apart."""
    draw = np.random.default_rng(seed)
    for number, spec in zip(range(count), specs(), strict=False):
        yield record(spec, number, draw)


def specs() -> Iterator[RunSpec]:
    """Without end: in each round the wide setting's 30 runs, then 16 settings with dfa and frozen, one of them cut short."""
    for turn in range(10**6):
        made = []
        for method in SCENES:
            made += [_spec(turn, 0, method, seed) for seed in SEEDS]
        for method in PENALISED:
            made += [_spec(turn, 0, method, seed, 0.01) for seed in SEEDS]
        for setting in range(1, 17):
            made += [_spec(turn, setting, method, seed) for method in ("dfa", "frozen") for seed in SEEDS]
        yield from made[:ROUND]


def wide(seed: int = 0) -> Iterator[RunRecord]:
    """One setting with 24 methods of 5 seeds each, as many as the methods study could have; frozen is the last."""
    draw = np.random.default_rng(seed)
    variants = [(method, turn) for turn in range(4) for method in SCENES if method != "frozen"][: WIDE_METHODS - 1]
    number = 0
    for method, turn in [*variants, ("frozen", 0)]:
        for each in WIDE_SEEDS:
            options = {"variant": turn} if turn else {}
            yield record(dataclasses.replace(_spec(0, 0, method, each), method_options=options), number, draw)
            number += 1


def _spec(turn: int, setting: int, method: str, seed: int, penalty: float = 0.0) -> RunSpec:
    options = {"d_hidden": 256 + turn, "num_blocks": BLOCKS, "residual": True, "terminal_ln": setting % 2 == 0}
    control = "frozen" if method == "frozen" else "none"
    trained = "bp" if method == "frozen" else method
    dataset = f"cifar_shaped_{setting:02d}"
    return RunSpec(trained, "resmlp", dataset, seed, EPOCHS, {}, options, penalty=penalty, control=control)


def record(spec: RunSpec, number: int, draw: np.random.Generator) -> RunRecord:
    """One complete run of a specification."""
    scale, gradient, gamma, accuracy = SCENES["frozen" if spec.control == "frozen" else spec.method]
    if spec.penalty:
        scale, gradient, accuracy = min(scale, 8.0), max(gradient, 1e-2), accuracy + 0.03
    accuracy += 0.004 * draw.standard_normal()
    measured = _measurements(scale, gradient, gamma, accuracy, draw)
    width = spec.architecture_options["d_hidden"]
    return RunRecord(
        run_id=f"{number:08x}{draw.integers(2**48):024x}",
        name=f"{spec.method_label}-{spec.dataset}-{spec.seed}",
        setting=f"{spec.dataset} · resmlp L={BLOCKS} D={width} · {EPOCHS} epochs",
        status="complete",
        spec=spec,
        measurements=measured,
        trajectory={name: _series(name, scale, gradient, accuracy, draw) for name in GROWING + FRACTIONS},
        integrity=Integrity("trusted", ("the logged metrics were not recomputed",)),
        digests={f"artifact_{index}": f"{number:064x}" for index in range(8)},
        feedback={
            "distribution": "N(0, 1/C)",
            "seed": spec.seed,
            "sha256": f"{number:064x}",
            "tensors": {"B_01": [256, 10]},
        },
        provenance={
            "commit": "0123abc",
            "dirty": False,
            "versions": {"torch": "2.11.0", "numpy": "2.3.0"},
            "hardware": {"machine": "x86_64", "cpu": "made up", "cores": 2},
            "parameters": 1_318_000,
            "eval_indices": list(range(128)),
        },
    )


def _measurements(
    scale: float, gradient: float, gamma: float, accuracy: float, draw: np.random.Generator
) -> Measurements:
    def around(centre: float) -> tuple[Reading, ...]:
        return tuple(Reading(float(value)) for value in centre * (1 + 0.1 * draw.standard_normal(BLOCKS + 1)))

    growth = scale ** (1 / BLOCKS)
    hidden = tuple(Reading(16.0 * growth**site) for site in range(BLOCKS + 1))
    growths = tuple(Reading(growth * (1 + 0.01 * site)) for site in range(1, BLOCKS + 1))
    per_sample = around(gradient)
    sites = {
        "h_norm": hidden,
        "growth": (Reading(None, "site 0 has no block before it"), *growths),
        "growth_init": tuple(Reading(growth**site) for site in range(BLOCKS + 1)),
        "g_norm": per_sample,
        "g_norm_mean_ce": tuple(Reading(reading.value / 128) for reading in per_sample),
        "gain": tuple(Reading(reading.value * 1.3) for reading in per_sample),
        "gamma": around(gamma),
        **{name: around(size) for name, size in ABOUT.items()},
    }
    scalars = {
        "h_L": hidden[-1],
        "g_L": per_sample[-1],
        "growth_max": growths[-1],
        "growth_init_max": Reading(scale),
        "accuracy": Reading(accuracy),
        "stability_mid": sites["stability"][BLOCKS // 2],
        "fidelity_min": Reading(0.999),
        "gamma_deep_mean": Reading(float(np.mean([reading.value for reading in sites["gamma"][1:]]))),
        "gamma_spread": Reading(0.05),
        "gamma_block_input_mean": Reading(0.2),
        "feature_drift_blocks": Reading(1.7),
        "blocks_trained": Reading(float(BLOCKS)),
        **{name: Reading(gamma) for name in AGGREGATES},
        **{f"feature_drift/{name}": Reading(float(draw.random())) for name in DRIFT},
    }
    conventions = {
        "eval_samples": 128,
        "threads": 1,
        "stability_batches": 8,
        "stability_samples": 1024,
        "gamma_null_draws": 20,
    }
    return Measurements(sites, scalars, conventions)


def _series(name: str, scale: float, gradient: float, accuracy: float, draw: np.random.Generator) -> Series:
    """A curve from initialisation to the scene's final number, with the jitter that real ones have."""
    end = {"h_L": 16 * scale, "growth_max": scale**0.25, "accuracy": accuracy, "penalty": 0.1, "loss_train": 0.5}.get(
        name
    )
    if name in FRACTIONS:
        start, end = 0.1, end or 0.3
    else:
        start, end = (1.0, end) if end else (0.9, gradient)
    steps = np.linspace(0, 1, EPOCHS + 1) ** 0.6
    curve = start * (end / start) ** steps * (1 + 0.02 * draw.standard_normal(EPOCHS + 1))
    return Series(Reading(float(value)) for value in curve)
