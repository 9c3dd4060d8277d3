"""Third-party tasks: their runs get no PASS, and they replace nothing that a run records."""

from __future__ import annotations

import dataclasses
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from fa_registry import architectures
from fa_registry.architectures.base import Network
from fa_registry.cli import main
from fa_registry.errors import PluginError
from fa_registry.evidence.network_check import MOST_CUTS, cuts, network_check, task_check
from fa_registry.protocol.evidence_rules import evidence
from fa_registry.records import NETWORK_CHECK, TASK_CHECK, Check, Integrity
from fa_registry.tasks import CATALOG, reported_metrics
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.measuring import measure, with_conventions
from fa_registry.training.run_setup import build_setup, build_setup_from_splits
from fa_registry.training.specs import parse_spec
from tests.builders import record
from tests.helpers.plugins import installed_member
from tests.helpers.tiny_tasks import CPU, tiny_task

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "third_party_task" / "my_tasks" / "label_smoothing.py"
DATA = """
import dataclasses
from fa_registry.datasets.digits import Digits

class Smooth(Digits):
    card = dataclasses.replace(Digits.card, name="smooth_digits", task="label_smoothing")

PLUGIN = Smooth()
"""


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


RETURNS = """
    def {}(self, *given):
        import torch
        mean = torch.tensor(0.5)
        return {}
"""
FIELDS_OF_SMOOTH = ["--dataset", "smooth_digits", "--set", "architecture.d_hidden=16,architecture.num_blocks=2"]


@pytest.fixture
def install(tmp_path):
    """Return a function that installs the task of docs/own-task.md, with further code in its class."""
    with ExitStack() as packages:

        def install(further: str = "") -> None:
            source = FIXTURE.read_text(encoding="utf-8").replace(
                "\n\nclass SmoothDigits", further + "\n\nclass SmoothDigits", 1
            )
            source = "from fa_registry.records import Reading\n" + source.replace(
                "from __future__ import annotations\n", ""
            )
            packages.enter_context(installed_member(tmp_path / "task", "tasks", "label_smoothing", source))
            packages.enter_context(installed_member(tmp_path / "data", "datasets", "smooth_digits", DATA))

        yield install


def smooth_setup(**changes):
    tiny = tiny_task(**changes)
    card = dataclasses.replace(tiny.card, task="label_smoothing")
    return build_setup_from_splits(tiny.spec, CPU, card, tiny.splits)


def test_runs_of_an_honest_third_party_task_are_verified_and_at_most_warned(install, tmp_path):
    install()
    store = f"sqlite:///{tmp_path}/store.db"
    for control, method in (("none", "dfa"), ("frozen", "bp")):
        how = ("--method", method, "--control", control, "--seed", "1", "--epochs", "1", "--store", store)
        trained = run("train", *FIELDS_OF_SMOOTH, *how)
        assert trained.exit_code == 0, trained.output
    audited = run(
        "audit", "--experiment", "fa_registry", "--store", store, "--out", str(tmp_path / "out"), "--exit-zero"
    )
    assert audited.exit_code == 0 and "integrity" not in audited.output, audited.output
    form = next((tmp_path / "out" / "forms").glob("dfa-*.md")).read_text(encoding="utf-8")
    assert "THIRD-PARTY TASK" in form and "verified" in form and "PASS" not in form
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert all(f"{package} 1.0" in page for package in ("label_smoothing", "smooth_digits"))


WRONG = {  # what a function of the task returns, and the word of the error that names it
    "evaluate": {
        "None": "None",
        "[Reading(0.5)]": "list",
        "{'accuracy': 0.5}": "float",
        "{'accuracy': None}": "NoneType",
        "{'accuracy': Reading(mean)}": "Tensor",
        "{'accuracy': Reading(float('nan'))}": "nan",
        "{'accuracy': Reading(float('inf'))}": "inf",
        "{'mine': Reading(0.5)}": "mine",
        "{}": "none",
        "{0: Reading(0.5)}": "0",
        "{'accuracy': Reading(1.7)}": "1.7",
        "{'h_L': Reading(1.0)}": "h_L",
    },
    "train_metrics": {
        "None": "None",
        "{'accuracy_train': Reading(-0.1)}": "-0.1",
        "{'accuracy_train': Reading(1.2)}": "1.2",
        "{'accuracy_train': 0.5}": "float",
    },
}


@pytest.mark.parametrize(
    ("function", "returned", "word"),
    [(function, *one) for function, returned in WRONG.items() for one in returned.items()],
)
def test_a_wrong_result_of_a_task_is_one_sentence(install, function, returned, word):
    install(RETURNS.format(function, returned))
    with pytest.raises(PluginError, match=rf"'label_smoothing': {function}.*{re.escape(word)}"):
        reported_metrics(CATALOG.get("label_smoothing"), function)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "returned", "absent"),
    [("evaluate", "None", "accuracy/test"), ("train_metrics", "{'accuracy_train': Reading(1.2)}", "accuracy/train")],
)
def test_a_training_ends_at_a_wrong_result_and_records_none(install, tmp_path, function, returned, absent):
    install(RETURNS.format(function, returned))
    store = f"sqlite:///{tmp_path}/store.db"
    trained = run("train", *FIELDS_OF_SMOOTH, "--method", "dfa", "--seed", "1", "--epochs", "1", "--store", store)
    assert trained.exit_code == 2 and "Traceback" not in trained.output, trained.output
    assert not [one.run_id for one in MlflowTracker(store).search({}) if absent in one.metrics]


@pytest.mark.long
def test_a_wrong_result_that_only_an_audit_meets_excludes_the_run(install, tmp_path):
    """The task returns None if a variable of the environment is set, as it is for the audit."""
    condition = "__import__('os').environ.get('WRONG_RESULT')"
    install(
        "\n    def evaluate(self, *given):\n        honest = super().evaluate(*given)\n"
        f"        return None if {condition} else honest\n"
    )
    store = f"sqlite:///{tmp_path}/store.db"
    trained = run("train", *FIELDS_OF_SMOOTH, "--method", "dfa", "--seed", "1", "--epochs", "1", "--store", store)
    assert trained.exit_code == 0, trained.output
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WRONG_RESULT", "1")
        audited = run("audit", "--experiment", "fa_registry", "--store", store, "--out", str(tmp_path / "out"))
    assert audited.exit_code != 0 and "Traceback" not in audited.output
    assert "task 'label_smoothing': evaluate" in audited.output, audited.output


def test_a_task_must_not_have_the_name_of_another_task_on_its_card(tmp_path):
    """A card named `classification` would pass for the built-in task, so the rule `task` would not apply."""
    source = "import dataclasses\nfrom fa_registry.tasks.classification import Classification\n"
    source += "PLUGIN = type('Disguised', (Classification,), {})()\n"
    refused = pytest.raises(PluginError, match="'label_smoothing'.*'classification'")
    with installed_member(tmp_path, "tasks", "label_smoothing", source), refused:
        smooth_setup()


@pytest.mark.parametrize("headline", ["mine", "h_L"])
def test_a_card_with_an_unknown_main_metric_is_refused(headline):
    with pytest.raises(PluginError, match=f"headline: .*'{headline}'"):
        dataclasses.replace(CATALOG.get("classification").card, headline=headline)


def test_an_error_that_is_not_the_gradient_of_the_loss_is_refused_before_training(install):
    install(
        "\n    def output_error(self, outputs, targets, rows=None):\n        return self.target_rows(outputs, targets)\n"
    )
    with pytest.raises(PluginError, match="output_error"):
        smooth_setup()


def test_the_conventions_of_a_task_replace_no_entry_of_the_run(install):
    install(
        "\n    def conventions(self, outputs):\n        return {'test_samples': 10**9, 'eval_digest': 'x', 'mine': 1}\n"
    )
    setup = smooth_setup()
    found = with_conventions(measure(setup), setup).conventions
    assert found["test_samples"] == len(setup.splits.test_labels) and found["eval_digest"] != "x" and found["mine"] == 1


def test_the_check_of_a_third_party_task_is_a_warning_by_every_edition(install):
    install()
    check = task_check(smooth_setup())
    assert (check.subject, check.outcome) == (TASK_CHECK, "not possible") and "label_smoothing" in check.detail
    assert task_check(tiny_task()) is None
    judged = dataclasses.replace(record("r"), integrity=Integrity("verified", checks=(check,)))
    (finding,) = [one for one in evidence(judged) if one.rule == "task"]
    assert (finding.outcome, finding.state) == ("warn", "THIRD-PARTY TASK")


FIELDS = {"dataset": "markov_text", "seed": 1, "epochs": 1}
SMALL = {"d_hidden": 8, "num_blocks": 1, "heads": 2}


class Mixing(nn.Module):
    """A block that adds its own token, a mean over sequences or positions, or the next token."""

    def __init__(self, seen: str):
        super().__init__()
        self.seen, self.weight = seen, nn.Parameter(torch.eye(8))

    def forward(self, tokens):
        ahead = torch.cat([tokens[:, 1:], tokens[:, -1:]], dim=1)
        position = torch.arange(tokens.shape[1])[:, None]
        mixed = {
            "own": tokens,
            "sequences": tokens.mean(dim=0, keepdim=True).expand_as(tokens) * 8,
            "positions": tokens.mean(dim=1, keepdim=True).expand_as(tokens) * 8,
            "ahead, late": ahead * (position > tokens.shape[1] // 2),
            "ahead, at position 9": ahead * (position == 9),
            "ahead, in feature 0": ahead * (torch.arange(8) == 0),
        }[self.seen]
        return mixed @ self.weight.T


def token_check(monkeypatch, block: nn.Module) -> Check:
    """Return the check of a third-party network with one block and a head that ignores feature 0."""
    spec = parse_spec({**FIELDS, "method": "bp", "architecture": "causal_transformer", "architecture_options": SMALL})
    setup = build_setup(spec, CPU)
    torch.manual_seed(0)
    network = Network(nn.Embedding(32, 8), [block], None, nn.Linear(8, 32))
    nn.init.ones_(network.out_head.weight[:, :1])  # feature 0 changes all logits alike, and so no prediction
    original = architectures.CATALOG.location("causal_transformer")
    location = dataclasses.replace(original, package="elsewhere", version="1")
    monkeypatch.setattr(architectures.CATALOG, "location", lambda name: location)
    return network_check(dataclasses.replace(setup, network=network), measure(setup, moments=()))


@pytest.mark.parametrize(
    ("seen", "objection"),
    [
        ("own", ""),
        ("ahead, in feature 0", ""),
        ("positions", "31 of 32 positions"),
        ("ahead, late", "first at position 17"),
        ("ahead, at position 9", "first at position 9"),
        ("sequences", "batch of one sequence"),
    ],
)
def test_a_token_network_must_not_depend_on_later_tokens_or_other_sequences(monkeypatch, seen, objection):
    check = token_check(monkeypatch, Mixing(seen))
    assert check.subject == NETWORK_CHECK and check.outcome == ("not possible" if objection else "agrees"), check.detail
    assert objection in check.detail


class Diverged(nn.Module):
    def forward(self, tokens):
        return tokens * torch.inf


def test_a_diverged_token_network_is_not_accused(monkeypatch):
    check = token_check(monkeypatch, Diverged())
    assert check.outcome == "agrees" and "nan" in check.detail


def test_all_positions_are_followed_by_a_cut_up_to_the_limit():
    assert cuts(1).tolist() == [] and cuts(2).tolist() == [1]
    assert cuts(64).tolist() == list(range(1, 64)) and cuts(MOST_CUTS + 1).tolist() == list(range(1, MOST_CUTS + 1))
    longer = cuts(10 * MOST_CUTS)
    assert len(longer.unique()) == MOST_CUTS and (longer[0], longer[-1]) == (1, 10 * MOST_CUTS - 1)
