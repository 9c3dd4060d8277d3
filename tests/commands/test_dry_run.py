"""study --dry-run: what would be trained, what is there, what it would take; the store stays as it is."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

import fa_registry
from fa_registry.errors import InvalidFields
from fa_registry.jsonio import file_digest
from fa_registry.training import state_sizes
from tests.commands.conftest import fields

PENALTY = """
[[grid]]
name = "penalised"
methods = ["dfa"]
penalties = [0.0, 0.1]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
epochs = [3]
controls = { frozen_long = true, shallow = true, ladder = true }
architecture_options = { d_hidden = 8, num_blocks = 2 }
"""


dry = partial(fa_registry.study, device="cpu", dry_run=True)


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): file_digest(path) for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_written(trained, workplace):
    before = files(workplace)
    result = trained("study", "tiny", "--dry-run", "--device", "cpu", "--epochs", "3")
    assert result.exit_code == 0, result.output
    assert files(workplace) == before


def test_a_store_that_is_not_there_is_not_made(workplace):
    plan = dry("digits", store=f"sqlite:///{workplace / 'none.db'}")
    assert plan.complete == 0 and not (workplace / "none.db").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_study_that_cannot_be_trained_makes_no_store(registry, workplace, dry_run):
    path = workplace / "tiny" / "study.toml"
    path.write_text(re.sub(r"d_hidden = \d+", "d_hidden = 1000000", path.read_text()))
    with pytest.raises(InvalidFields, match="GiB of memory"):
        fa_registry.study("tiny", store=f"sqlite:///{workplace / 'none.db'}", device="cpu", dry_run=dry_run)
    assert not (workplace / "none.db").exists()


def test_what_is_complete_is_counted(trained):
    plan = dry("tiny")
    assert (plan.runs, plan.complete, plan.control_runs) == (4, 4, 1)
    other = dry("tiny", seeds=[1, 2], jobs=2)
    assert (other.runs, other.complete, other.jobs) == (8, 4, 2)
    assert dry("tiny", force=True).complete == 0


def test_settings_methods_and_controls_are_told_apart(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text() + PENALTY)
    plan = dry("tiny")
    assert plan.methods == ("bp", "fa", "dfa", "dfa+pen")
    first, second = plan.settings
    assert (first.labels, first.methods, first.controls, first.epochs) == ((), ("bp", "fa", "dfa"), {"frozen": 1}, 2)
    assert (second.labels, second.methods, second.epochs) == (("penalised",), ("dfa", "dfa+pen"), 3)
    assert second.controls == {
        "frozen": 1,
        "frozen_long": 1,
        "shallow": 1,
        "ladder": 3,
    }  # zero trained blocks have no penalty
    assert plan.runs == first.runs + second.runs == 4 + 8
    assert plan.control_runs == 1 + 6


def test_json_holds_all_of_the_plan(registry):
    result = registry("study", "tiny", "--dry-run", "--json", "--device", "cpu", "--replace-dataset", "digits_centred")
    plan = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (plan["study"], plan["runs"], plan["complete"]) == ("tiny", 4, 0)
    assert plan["twin"] == "--replace-dataset digits_centred"
    assert plan["settings"][0]["dataset"] == "digits_centred"
    assert plan["settings"][0]["architecture_options"]["d_hidden"] == 16


@pytest.mark.parametrize(
    ("in_study", "typed", "kept"),
    [
        ("", "auto", 0),  # three states need three times the disk space of such a run
        ("keep_states = 1", "auto", 1),
        ('keep_states = "all"', "auto", 1),  # of two epochs
        ("keep_states = 1", 0, 0),
        ("", "1", 1),
    ],
)
def test_the_number_of_kept_states_is_planned(registry, workplace, in_study, typed, kept):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace("cost =", f"{in_study}\ncost ="))
    assert dry("tiny", keep_states=typed).kept_states == kept


def test_three_states_are_planned_where_they_are_small(registry, monkeypatch):
    monkeypatch.setattr(state_sizes, "EPOCH_BYTES", 10**9)
    assert dry("tiny", epochs=5).kept_states == 3 and dry("tiny", epochs=3).kept_states == 2


def test_a_complete_study_plans_no_states(trained):
    assert dry("tiny").kept_states is None


@pytest.mark.parametrize("typed", ["none", "-1", 1.5, ""])
def test_a_wrong_number_of_states_is_refused(registry, workplace, typed):
    with pytest.raises(InvalidFields) as caught:
        dry("tiny", keep_states=typed)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["keep_states"]
    with pytest.raises(InvalidFields, match="keep_states"):
        fa_registry.train(method="bp", seed=1, epochs=1, keep_states=typed, device="cpu")
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace("cost =", f"keep_states = {json.dumps(typed)}\ncost ="))
    with pytest.raises(InvalidFields, match="keep_states"):
        dry("tiny")


@pytest.mark.parametrize("message", [("study", "tiny"), ("study", "tiny", "--dry-run"), ("study", "tiny", "--json")])
def test_images_that_an_architecture_cannot_take_are_refused_before_anything_is_run(registry, workplace, message):
    path = workplace / "tiny" / "study.toml"
    text = path.read_text().replace('"resmlp"', '"vit_mini"').replace("d_hidden = 16, num_blocks = 2", "patch = 5")
    path.write_text(text)
    result = registry(*message, "--device", "cpu")
    assert fields(result) == ["grid[0].architecture_options.patch"]
    assert not (workplace / "mlartifacts").exists()


def test_the_same_is_refused_as_by_the_study_itself(registry):
    with pytest.raises(InvalidFields) as caught:
        dry("tiny", scale="x", data="lq", jobs="many")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["jobs", "data", "scale"]
    with pytest.raises(InvalidFields, match="stop_on: unknown rule"):
        dry("tiny", stop_on="D9")
