"""The configuration that a run records, and the fingerprint that recognises one which no setting names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fa_registry.training.devices import LONGEST, configuration
from fa_registry.training.measuring import machine
from tests.helpers.tiny_tasks import tiny_task

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
SHOW = """
import json, torch
from fa_registry.training.devices import configuration
torch.set_num_threads(1)
print(json.dumps(configuration()))
"""


def in_a_process(**environment: str) -> dict[str, str]:
    """The configuration of a process that was started with these variables."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", SHOW], env=variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_process_of_the_same_configuration_has_the_same_fingerprint():
    assert in_a_process() == configuration()


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="no vector instructions to do without")
def test_other_instructions_are_named_and_compute_another_fingerprint():
    here, there = configuration(), in_a_process(ATEN_CPU_CAPABILITY="default")
    assert there["instruction_set"] == "DEFAULT, ATEN_CPU_CAPABILITY=default"
    assert there["fingerprint"] != here["fingerprint"]


def test_a_variable_is_recorded_in_part_and_changes_the_configuration(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "x" * 1000)
    assert configuration()["instruction_set"].endswith(f", MKL_CBWR={'x' * LONGEST}")


def test_denormals_that_are_flushed_are_named():
    before = configuration()
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush denormals")
        assert configuration()["math_library"] == f"{before['math_library']}, denormals flushed"
    finally:
        torch.set_flush_denormal(False)


def test_a_run_records_it_in_addition_to_the_older_settings():
    recorded = machine(tiny_task())
    assert configuration().items() <= recorded.items()
    assert list(recorded) == ["threads", "device", "processor", "torch", *configuration()]
