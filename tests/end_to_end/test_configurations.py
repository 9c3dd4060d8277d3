"""An honest study is trained once and audited under other instruction sets: no run is accused, and no verdict is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fa_registry import jsonio
from fa_registry.records import AuditReport
from tests.helpers.stores import made_once

pytestmark = pytest.mark.long  # two minutes

ROOT = Path(__file__).resolve().parents[2]
STUDY = """
name = "configured"
title = "Digits, small and at the study's size"
edition = "2026-12"
cost = "a minute"

[recipe]
epochs = 30

[controls]
frozen = true

[[grid]]
methods = ["bp"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [42, 123, 456]

[[grid]]
methods = ["fa", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [42]

[[grid]]
methods = ["bp", "fa", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""
# Each by what its process is started with. MKL takes MKL_ENABLE_INSTRUCTIONS on processors of Intel alone, MKL_CBWR on all.
CONFIGURATIONS = {
    "default": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "no AVX": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}


def command(folder: Path, *arguments: str, **environment: str) -> str:
    """The command line in a separate process that starts with these variables; returns what it printed."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    program = [sys.executable, "-m", "fa_registry", *arguments]
    done = subprocess.run(program, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, AuditReport]:
    """The audit of one trained store under each configuration."""

    def train(folder: Path) -> None:
        (folder / "configured.toml").write_text(STUDY, encoding="utf-8")
        command(folder, "study", "configured.toml", "--device", "cpu", "--jobs", "1")
        for name, environment in CONFIGURATIONS.items():
            out = name.replace(" ", "-")
            command(folder, "audit", "--study", "configured.toml", "--jobs", "1", "--out", out, **environment)

    folder = made_once(tmp_path_factory, "configured", train)
    files = {name: folder / name.replace(" ", "-") / "audit.json" for name in CONFIGURATIONS}
    return {name: jsonio.decode(AuditReport, json.loads(file.read_text("utf-8"))) for name, file in files.items()}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_honest_run_is_a_mismatch_or_left_unjudged(reports, name):
    report = reports[name]
    found = {run.record.name: run.record.integrity for run in report.runs}
    assert not report.excluded and len(found) == 12
    assert {integrity.state for integrity in found.values()} == {"verified"}, found


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_verdict_is_that_of_the_training_configuration(reports, name):
    verdicts = {run.record.name: run.verdict.label for run in reports[name].runs}
    assert verdicts == {run.record.name: run.verdict.label for run in reports["default"].runs}
    bp = [label for run, label in verdicts.items() if run.startswith("bp · resmlp-256x4")]
    assert bp == ["PASS"] * 3


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_bits_are_demanded_of_the_same_configuration_alone(reports, name):
    details = {run.record.integrity.details[0] for run in reports[name].runs}
    (detail,) = details
    if name == "default":
        assert detail.endswith("bit-equal")
        return
    assert all(f"{variable}={value}" in detail for variable, value in CONFIGURATIONS[name].items())


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="no vector instructions to do without")
def test_the_processes_computed_other_bits(reports):
    """Otherwise nothing above is shown. Without AVX-512 there is nothing to turn off for AVX2: the default computes the same."""
    prints = {name: run.record.measurements.conventions["fingerprint"] for name, run in first_runs(reports)}
    assert prints["default"] != prints["no AVX"] != prints["AVX2"], prints
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert prints["default"] != prints["AVX2"], prints


def first_runs(reports: dict[str, AuditReport]):
    """(configuration, first run) of each report."""
    return ((name, report.runs[0]) for name, report in reports.items())
