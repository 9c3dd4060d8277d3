"""A study's variant in the store: trained under the study's name, found by its audit, never mixed with the study itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fa_registry.api import study
from fa_registry.audits.selection import select_runs
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import call, write_study
from tests.helpers.stores import copy_store, made_once, working_in

pytestmark = pytest.mark.long

VARIANT = {"data": "digits_centred", "scale": "0.5", "device": "cpu"}


@pytest.fixture(scope="session")
def variant_store(tmp_path_factory, empty_store) -> Path:
    """The folder of a store with the variant of the tiny study trained, for copies."""

    def train(folder: Path) -> None:
        shutil.copy(empty_store, folder)
        write_study(folder)
        variant = ("--replace-dataset", "digits_centred", "--scale", "0.5")
        with working_in(folder):
            result = call("study", "tiny", *variant, "--jobs", "1", "--device", "cpu")
        assert result.exit_code == 0, result.output

    return made_once(tmp_path_factory, "variant", train)


@pytest.fixture
def variant_trained(variant_store, workplace):
    copy_store(variant_store, workplace)
    return call


def test_the_audit_of_the_study_finds_the_variant_and_says_so(unpublished, variant_trained):
    selection = select_runs(MlflowTracker(), RunSelector("tiny", overrides={"device": "cpu"}))
    assert len(selection.runs) == 4 and not selection.excluded
    assert "--replace-dataset digits_centred --scale 0.5" in selection.text
    assert ["--scale 0.5" in remark for remark in selection.remarks] == [True]
    result = variant_trained("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--json")
    assert result.exit_code in (0, 1), result.output
    assert "--scale 0.5" in result.stdout


def test_runs_of_the_study_itself_come_first_and_the_variant_can_still_be_asked_for(variant_trained):
    variant_trained("study", "tiny", "--jobs", "1", "--device", "cpu")
    tracker = MlflowTracker()
    itself = select_runs(tracker, RunSelector("tiny", overrides={"device": "cpu"}))
    variant = select_runs(tracker, RunSelector("tiny", overrides=VARIANT))
    assert len(itself.runs) == len(variant.runs) == 4
    assert not {run.run_id for run in itself.runs} & {run.run_id for run in variant.runs}
    assert "--scale" not in itself.text and itself.choice.others == 4


@pytest.mark.long
def test_the_variant_trained_last_is_audited(variant_trained):
    variant_trained("study", "tiny", "--scale", "1.5", "--jobs", "1", "--device", "cpu")
    selection = select_runs(MlflowTracker(), RunSelector("tiny", overrides={"device": "cpu"}))
    assert "--scale 1.5" in selection.text


def test_asking_for_other_epochs_is_not_asking_for_the_variant(variant_trained):
    result = variant_trained("audit", "--study", "tiny", "--epochs", "9", "--device", "cpu")
    assert result.exit_code == 2 and "epochs 9" in result.stderr


def test_the_studys_own_run_says_which_variant_it_is(variant_trained):
    (parent,) = MlflowTracker().search({schema.TAG_KIND: "study"})
    assert json.loads(parent.tags[schema.TAG_VARIANT]) == {"data": "digits_centred", "scale": 0.5}
    assert parent.tags[schema.TAG_STATUS] == "complete"


def test_a_variant_whose_runs_another_study_trained_is_found_too(variant_trained, workplace):
    text = (workplace / "tiny" / "study.toml").read_text().replace('name = "tiny"', 'name = "other"')
    (workplace / "other.toml").write_text(text)
    again = study("other.toml", **VARIANT, jobs=1)
    assert len(again.present) == 4 and not again.trained
    selection = select_runs(MlflowTracker(), RunSelector("other.toml", overrides={"device": "cpu"}))
    assert len(selection.runs) == 4
    study("other.toml", **VARIANT, jobs=1)
    assert len(MlflowTracker().search({schema.TAG_KIND: "study", schema.TAG_STUDY: "other"})) == 1
