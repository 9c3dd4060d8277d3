"""A small study.toml, and a way to write one."""

from __future__ import annotations

TINY = """
name = "tiny"
title = "Two methods"
edition = "2026-05"

[recipe]
epochs = 1

[[grid]]
methods = ["bp", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""


def study_file(tmp_path, text=TINY):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)
