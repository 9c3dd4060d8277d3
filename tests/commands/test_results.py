"""What a public function returns: one line for `repr`, a screen for `print`, all rows in a frame."""

from __future__ import annotations

import inspect
import pickle
from operator import methodcaller

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.audits.analyse_command import run_analyse
from fa_registry.audits.promote import run_promote
from fa_registry.audits.verify import Verification
from fa_registry.external.adopt import run_adopt
from fa_registry.records import Integrity
from fa_registry.reporting.notebook import LINES, SCREEN
from fa_registry.reporting.results import LONGEST, ResultList, TableResult
from fa_registry.studies.options import CheckpointOptions, RunSelector
from tests.helpers.tiny_tasks import SEED

pytestmark = pytest.mark.long

SIZES = {"architecture.d_hidden": 16, "architecture.num_blocks": 2}
# these return an object of another package: a pandas frame, a module, the model of the user
OTHERS = {"runs", "series", "torchvision", "frozen_control"}
SITES = ("0", "1", "2")


def assert_short(shown: object) -> None:
    """One line for `repr`, at most a screen for `print` and in a notebook a form that no other text becomes part of."""
    assert "\n" not in repr(shown) and len(repr(shown)) <= 200, (len(repr(shown)), repr(shown)[:300])
    assert len(str(shown).splitlines()) <= 60, str(shown)
    assert len(str(shown)) < 8000, len(str(shown))


def results_of_commands(elsewhere) -> dict[str, object]:
    trained = fa_registry.train(method="bp", seed=9, epochs=1, settings=SIZES, device="cpu")
    audited = fa_registry.audit(study="tiny")
    bundled = fa_registry.bundle("tiny")
    failed = next(run.record.run_id for run in audited.report.runs if run.verdict.outcome == "fail")
    return {
        "train": trained,
        "study": fa_registry.study("tiny"),
        "study, dry_run": fa_registry.study("tiny", dry_run=True),
        "work": fa_registry.work("tiny"),
        "audit": audited,
        "compare": fa_registry.compare("bp", "dfa", study="tiny"),
        "verify": fa_registry.verify(study="tiny"),
        "bundle": bundled,
        "import_bundle": fa_registry.import_bundle(bundled.path),
        "report": fa_registry.report("reports/audit.json", out="again"),
        "analyse": run_analyse("all", RunSelector("tiny")),
        "adopt": run_adopt(
            elsewhere.weights,
            CheckpointOptions(
                method="dfa",
                seed=SEED,
                epochs=1,
                settings={**SIZES, "architecture.w2_std": 0.5},
                feedback=elsewhere.feedback,
                device="cpu",
            ),
        ),
        "promote": run_promote(failed, despite="a test", author="me"),
        "forget": fa_registry.forget(trained.run_id),
    }


def results_for_own_models() -> dict[str, object]:
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    x, y = torch.randn(16, 8), torch.arange(16) % 8

    def credit(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ones(len(x), 8) for _ in range(4)]

    adapted = fa_registry.adapt(model, sites=SITES)
    with fa_registry.track(adapted, eval=(x, y), method="my", seed=7, credit=credit) as run:
        epoch = run.epoch(test_accuracy=0.3)
    return {
        "adapt": adapted,
        "alignment": fa_registry.alignment(model, (x, y), credit, sites=SITES),
        "diagnose": fa_registry.diagnose(adapted, [(x[:8], y[:8]), (x[8:], y[8:])]),
        "track": run,
        "track, epoch": epoch,
    }


def test_every_public_function_returns_what_can_be_printed(trained, elsewhere):
    results = results_of_commands(elsewhere) | results_for_own_models()
    results["load_model"] = fa_registry.load_model(results["promote"].reference)
    public = {name for name in fa_registry.__all__ if inspect.isfunction(getattr(fa_registry, name))}
    assert public <= {*results, *OTHERS}
    for shown in results.values():
        assert_short(shown)
    for shown in (
        *results["verify"],
        *results["forget"],
        *results["analyse"].analyses,
        *results["audit"].report.runs[0].findings,
    ):
        assert_short(shown)
    for name in (
        "study",
        "study, dry_run",
        "audit",
        "compare",
        "verify",
        "import_bundle",
        "report",
        "analyse",
        "forget",
    ):
        assert len(results[name].frame()), name
    check_contents(results)


def check_contents(results: dict[str, object]) -> None:
    """What is printed answers the question of the command."""
    assert len(results["study"].frame()) == 4 and "bp, fa, dfa" in str(results["study, dry_run"])
    assert results["train"].run_id in repr(results["train"]) and "accuracy" in str(results["train"])
    assert isinstance(results["verify"], list) and f"{len(results['verify'])} verified" in repr(results["verify"])
    assert set(results["verify"].frame()["outcome"]) == {"verified"}
    assert results["bundle"].sha256 in str(results["bundle"])
    assert results["promote"].reference in repr(results["promote"])
    assert len(results["analyse"].frame("ablation")) == len(
        next(each for each in results["analyse"].analyses if each.name == "ablation").rows
    )
    assert results["train"].run_id in str(results["forget"])
    assert set(results["compare"].frame()["compared"]) == {"bp", "dfa"}


html = methodcaller("_repr_html_")  # what a notebook shows


class Many(TableResult):
    """A result with more rows than a screen."""

    def lines(self):
        yield from (f"line {number}" for number in range(100))

    def rows(self):
        return [{"run": number} for number in range(1000)]


def test_a_screen_ends_and_a_frame_has_the_rest():
    assert len(str(Many()).splitlines()) == LINES and str(Many()) != "\n".join(Many().lines())
    assert repr(Many()) == "Many(line 0)" and len(Many().frame()) == 1000
    outcomes = ResultList([Verification("a" * 32, "run", Integrity("verified", ()))] * 500, "500 verified")
    assert f"{SCREEN} of 500" in str(outcomes).splitlines()[-1] and html(outcomes).count("<tr>") <= 101


@pytest.mark.parametrize("name", ["\x1b[31m", "two\nlines", "a" * 10_000, "<script>"])
def test_text_of_a_run_is_one_line(name):
    outcomes = ResultList([Verification("b" * 32, name, Integrity("mismatch", (name,)))], name)
    for shown in (outcomes, outcomes[0]):
        assert "\x1b" not in repr(shown) + str(shown) and len(repr(shown)) <= LONGEST
        assert "\n" not in repr(shown) and "<script>" not in html(shown)


def test_a_list_of_results_is_a_list():
    outcomes = ResultList([Verification("c" * 32, "run", Integrity("verified", ()))], "1 verified")
    assert outcomes == list(outcomes) and pickle.loads(pickle.dumps(outcomes)).title == "1 verified"
