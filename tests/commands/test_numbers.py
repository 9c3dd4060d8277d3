"""Numbers that no user can mean, in every option that takes one: a sentence before anything is trained, never a hang."""

from __future__ import annotations

import pytest

from fa_registry.tracking.stores import open_tracker
from fa_registry.training import run_setup
from tests.commands.conftest import TRAIN, fields

WILD = ("-1", "1e308", "nan", "inf", "1" + "0" * 30, "9" * 5000, "")
OF_TRAIN = ("--seed", "--epochs", "--penalty", "--threads", "--checkpoint-every", "--hang-timeout")
SETTINGS = ("learning_rate", "weight_decay", "batch_size")
OPTIONS = ("architecture.d_hidden", "architecture.num_blocks", "architecture.w2_std", "method.steps", "method.beta")


def refused(result, call) -> None:
    """By a sentence, with exit code 2."""
    assert result.exit_code == 2 and "Traceback" not in result.output, (call, result.output)


@pytest.mark.parametrize("wild", WILD, ids=lambda wild: wild[:12] or "empty")
def test_no_command_takes_a_number_that_no_user_can_mean(registry, wild):
    """One wrong field more makes sure that nothing is trained where the number itself is one."""
    wrong = ("--method", "unknown")
    calls = [(*TRAIN, option, wild, *wrong) for option in OF_TRAIN]
    calls += [(*TRAIN, "--set", f"{name}={wild}", *wrong) for name in (*SETTINGS, *OPTIONS[:3])]
    calls += [(*TRAIN, "--method", "ep", "--set", f"{name}={wild}", "--control", "unknown") for name in OPTIONS[3:]]
    for option in ("--jobs", "--seeds", "--epochs", "--scale", "--checkpoint-every", "--hang-timeout"):
        calls.append(("study", "tiny", option, wild, "--stop-on", "nothing"))
    for option in ("--replay", "--jobs", "--scale", "--threshold"):
        calls.append(("audit", "--study", "tiny", option, f"D1={wild}" if option == "--threshold" else wild))
    calls += [("list", "runs", "--limit", wild)] if wild else []
    calls += [("adopt", "nowhere.pt", "--method", "dfa", "--seed", wild, "--epochs", wild, "--frozen-accuracy", wild)]
    for call in calls:
        refused(registry(*call), call)
    assert not open_tracker().search({})


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("seed", str(2**63), "9,223,372,036,854,775,807"),
        ("epochs", "100001", "100,000"),
        ("architecture.num_blocks", "100000", "10,000"),
        ("architecture.d_hidden", "99999999999", "1,000,000"),
        ("architecture.d_hidden", "1000000", "4,000,165,000,010 weights"),
        ("architecture.w2_std", "1e308", "1e+30"),
        ("penalty", "1e308", "1e+30"),
    ],
)
def test_what_is_too_large_says_how_large_it_may_be(registry, option, value, limit):
    result = registry(*TRAIN, "--set", f"{option}={value}")
    refused(result, option)
    assert limit in result.stderr


def test_a_batch_that_has_no_room_is_refused_before_a_run_is_written(registry, monkeypatch):
    monkeypatch.setattr(run_setup, "memory", lambda device: 100_000)  # enough for its weights
    assert fields(registry(*TRAIN, "--set", "batch_size=1437")) == ["batch_size"]
    assert not open_tracker().search({})


def test_a_study_that_has_no_room_is_refused_before_it_begins(registry, monkeypatch):
    monkeypatch.setattr(run_setup, "BYTES_A_WEIGHT", 2**40)
    for call in (("study", "tiny"), ("study", "tiny", "--dry-run")):
        result = registry(*call)
        refused(result, call)
        assert len(fields(result)) == 1  # once a setting, not once a run
    assert not open_tracker().search({})
