"""A study of as many short runs as asked for: 25 seeds a setting of bp, fa, dfa, a penalised dfa and their frozen control."""

from __future__ import annotations

PER_SEED, SEEDS = 5, 25  # runs a seed; seeds a setting
RATE, STEP = 1.01e-3, 1e-5  # learning rates: of the first setting, and from one to the next
HEAD = """
name = "filled"
title = "A registry of many runs"
edition = "2026-12"
cost = "nothing: its runs are copies"

[recipe]
epochs = {epochs}
"""
GRID = """
[[grid]]
methods = {methods}
architectures = ["resmlp"]
datasets = ["digits"]
seeds = {seeds}
penalties = [{penalty}]
architecture_options = {{ d_hidden = {width}, num_blocks = 4 }}
recipe = {{ learning_rate = {rate:g} }}
"""


def study_text(runs: int, epochs: int = 3, width: int = 16) -> str:
    """A study.toml of so many runs, rounded up to whole seeds; settings differ in their learning rate."""
    seeds, grids = -(-runs // PER_SEED), []
    for setting in range(-(-seeds // SEEDS)):
        own = {"seeds": list(range(min(SEEDS, seeds - setting * SEEDS))), "rate": RATE + setting * STEP, "width": width}
        grids.append(GRID.format(methods='["bp", "fa", "dfa"]', penalty=0.0, **own))
        grids.append(GRID.format(methods='["dfa"]', penalty=0.01, **own))
    return HEAD.format(epochs=epochs) + "".join(grids)
