"""What a store has of a study is named where the study's own epochs and seeds were never trained, and selects its runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_registry.audits.selection import select_runs
from fa_registry.audits.trained_options import TrainedOptions, advice_text, has_finished_runs, trained_options
from fa_registry.errors import NothingSelected
from fa_registry.studies.options import RunSelector
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import AUDIT_LOGGED

pytestmark = pytest.mark.long

OTHERS = (("epochs = 2", "epochs = 100"), ("seeds = [1]", "seeds = [42, 123]"))


def edit_study(*changes: tuple[str, str]) -> None:
    path = Path("tiny/study.toml")
    text = path.read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "changes", [OTHERS, *(pytest.param(one, marks=pytest.mark.long) for one in (OTHERS[:1], OTHERS[1:]))]
)
def test_the_options_that_are_named_select_the_runs_that_the_store_has(trained, changes):
    edit_study(*changes)
    tracker, selector = MlflowTracker(), RunSelector("tiny")
    assert not has_finished_runs(tracker, selector)
    (options,) = trained_options(tracker, selector)
    assert options == TrainedOptions(epochs=2, seeds=(1,))
    with pytest.raises(NothingSelected, match=f"{advice_text('tiny', 'runs', [options])}$") as refused:
        select_runs(tracker, selector)
    assert str(refused.value).count("\n") == 1  # runs that were never trained are not listed one by one
    for command in ("verify --study tiny", " ".join(AUDIT_LOGGED)):
        refused = trained(*command.split())
        assert refused.exit_code == 2 and options.flags in refused.stderr
        assert trained(*command.split(), *options.flags.split()).exit_code == 0


def test_options_that_would_select_nothing_are_not_named(trained):
    edit_study(*OTHERS, ("[[grid]]", "learning_rate = 0.5\n\n[[grid]]"))
    assert trained_options(MlflowTracker(), RunSelector("tiny")) == []
    assert trained("verify", "--study", "tiny").exit_code == 2


def test_another_data_set_of_the_runs_is_one_of_the_options(trained):
    edit_study(*OTHERS, ('datasets = ["digits"]', 'datasets = ["digits_centred"]'))
    (options,) = trained_options(MlflowTracker(), RunSelector("tiny"))
    assert options == TrainedOptions(2, (1,), "digits")
    assert trained("verify", "--study", "tiny", *options.flags.split()).exit_code == 0


def test_a_report_is_that_of_the_newest_audit_of_runs_with_these_epochs_and_seeds(audited_copy):
    """A later audit of another length does not replace it; before an audit, the command that audits names the options."""
    edit_study(("epochs = 2", "epochs = 1"))
    assert audited_copy("study", "tiny", "--jobs", "1", "--device", "cpu").exit_code == 0
    assert audited_copy(*AUDIT_LOGGED, "--out", "shorter").exit_code == 0
    for options, folder in (((), "shorter"), (("--epochs", "2"), "reports"), (("--epochs", "1"), "shorter")):
        rendered = audited_copy("report", "--study", "tiny", "--seeds", "1", *options, "--out", "again")
        assert rendered.exit_code == 0, rendered.output
        assert Path("again/audit.json").read_bytes() == Path(folder, "audit.json").read_bytes()
    refused = audited_copy("report", "--study", "tiny", "--epochs", "3")
    expected = advice_text("tiny", "audits", [TrainedOptions(1, (1,)), TrainedOptions(2, (1,))])
    assert refused.exit_code == 2 and refused.stderr.endswith(f"{expected}\n")


def test_without_an_audit_the_report_names_the_command_that_audits_what_was_trained(trained):
    edit_study(*OTHERS)
    for given in ((), ("--epochs", "2", "--seeds", "1")):
        refused = trained("report", "--study", "tiny", *given)
        assert refused.exit_code == 2 and "--epochs 2 --seeds 1`" in refused.stderr
    wrong = trained("report", "--epochs", "two", "--seeds", "1,x")
    assert wrong.exit_code == 2 and "'two'" in wrong.stderr and "'x'" in wrong.stderr
