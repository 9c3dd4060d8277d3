"""A frozen accuracy that the author typed: it may open a question, and never settles one in the author's favour."""

from __future__ import annotations

import json
import math

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Flag
from fa_registry.reporting.claims import claims
from fa_registry.reporting.pitfalls import PitfallContext, own_control
from fa_registry.reporting.report_index import Sources
from fa_registry.statistics import t_interval, wilson_interval
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.security.conftest import call, judged

pytestmark = pytest.mark.long

EDITIONS = ["2026-12", "2026-05", "2026-05:strict", "2026-04"]
SIZES = "architecture.d_hidden=16,architecture.num_blocks=2"
LOW = ("0.0", "0.0", "0.0")
BY_AUTHOR = "stated by the author"


def adopted(store, figures, method="bp", epochs=5) -> list[str]:
    """Run ids of the method's three networks, adopted as of a setting that has no control here, each with a typed figure."""
    found = []
    for seed, figure in zip((1, 2, 3), figures, strict=True):
        source = store.artifacts(store.run_id(method=method, seed=seed, control="none", epochs=4)) / schema.FINAL
        # by a bit others than the trained run's, which may not be filed twice
        weights = store.folder / f"given-{seed}.safetensors"
        tensors = load_tensors(source)
        name = max(tensors)
        save_tensors(weights, {**tensors, name: tensors[name] * (1 + 1e-6)})
        spec = ("--method", method, "--seed", str(seed), "--epochs", str(epochs), "--set", SIZES, "--device", "cpu")
        result = call("adopt", str(weights), *spec, "--frozen-accuracy", figure, "--json")
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout)["run_id"])
    return found


def chosen(run_ids) -> list[str]:
    return [part for run_id in run_ids for part in ("--run", run_id)]


def depth_of(run):
    """The finding about depth, regardless of the name of its rule in the edition."""
    return next(finding for finding in run.findings if finding.rule in ("D3", "d"))


def test_a_low_frozen_accuracy_that_the_author_types_never_passes(store, audit):
    """By any edition. Taken for the control of each seed it would have cleared the limit, by which such runs passed once."""
    code, report = audit(*chosen(adopted(store, LOW)), "--editions", ",".join(EDITIONS))
    accuracies = [100 * run.record.measurements.scalars["accuracy"].value for run in report.runs]
    alone = t_interval(accuracies)
    assert code == 0 and alone.low - 100 * float(LOW[0]) > 2
    judgements = [report.runs, *(opinion.judgements for opinion in report.opinions)]
    assert len(judgements) == len(EDITIONS)
    for run in (run for several in judgements for run in several):
        finding = depth_of(run)
        state = "UNDECIDED" if finding.interval else "STATED"
        assert (finding.outcome, finding.state, finding.stated) == ("warn", state, True)
        flag = f"{finding.rule} {state.lower()}{', above' if finding.interval else ''}"
        label = f"WARN({flag}; adopted stated)"
        assert finding.reference_run_id == "" and run.verdict.label == label
        assert BY_AUTHOR in finding.sentence
    low, high = depth_of(report.runs[0]).interval  # one draw of unknown origin: √(n + 1) times as wide
    samples = report.runs[0].record.measurements.conventions["test_samples"]
    shares = [wilson_interval(share, samples) for share in (sum(accuracies) / 300, float(LOW[0]))]
    halves = [alone.high - alone.low, *(50 * (share.high - share.low) for share in shares)]
    assert high - low == pytest.approx(2 * math.hypot(*halves), rel=1e-6)


def test_every_claim_that_rests_on_it_says_whose_figure_it_is(store, audit):
    _, report = audit(*chosen(adopted(store, LOW)), "--edition", "2026-12", published=True)
    stated_claims = claims(report.runs)
    about = [claim for claim in stated_claims if "frozen" in claim.text]
    assert about and all(BY_AUTHOR in claim.text and claim.kind == "open" for claim in about)
    assert "may" not in {claim.kind for claim in stated_claims}
    pages = [path.read_text(encoding="utf-8") for path in (store.folder / "pages").rglob("*.html")]
    assert any(BY_AUTHOR in page for page in pages)
    group = groups(report)[0]
    outcome, evidence = own_control(PitfallContext(group.runs[0], group.runs, Sources.of(report)))
    assert outcome == "violated" and BY_AUTHOR in evidence


def test_a_figure_slipped_into_a_trained_run_whose_control_is_not_selected(store, audit):
    """Written into the recorded measurements as `adopt` writes it, and recorded again."""
    run_ids = store.run_ids(method="bp", control="none")
    for run_id in run_ids:
        store.change_json(
            run_id,
            schema.MEASUREMENTS,
            lambda held: held["scalars"].update(frozen_accuracy=0.05),  # fa: ok FA010 stated
        )
        store.write_manifest(run_id)
    _, report = audit(*chosen(run_ids), "--edition", "2026-12")
    assert "pass" not in {run.verdict.outcome for run in report.runs}
    assert all(depth_of(run).outcome != "pass" for run in report.runs)


def test_a_typed_figure_does_not_stand_in_for_a_control_that_was_trained(store, audit):
    """Adopted under the very setting of the store's controls, which speak before any author does."""
    run_ids = [*adopted(store, LOW, epochs=4), *store.run_ids(control="frozen")]
    _, report = audit(*chosen(run_ids), "--edition", "2026-12")
    controls = {run.record.spec.seed: run.record.run_id for run in judged(report, control="frozen")}
    for run in judged(report, control="none"):
        finding = depth_of(run)
        assert not finding.stated and finding.reference_run_id == controls[run.record.spec.seed]


def test_an_accuracy_of_the_eval_batch_written_over_that_of_the_test_set(store, audit):
    """100 of the batch's 128 are no whole number of the 360 test samples; believed as logged, it passed."""
    for run_id in store.run_ids(method="bp", control="none"):
        store.change_json(run_id, schema.MEASUREMENTS, lambda held: held["scalars"].update(accuracy=100 / 128))
        store.write_manifest(run_id)
    _, report = audit("--trust-logged", "--edition", "2026-12")
    for run in judged(report, method="bp", control="none"):
        finding = depth_of(run)
        assert (finding.outcome, finding.state) == ("warn", "OTHER SET")
        assert run.verdict.outcome != "pass" and Flag("D3", "other set") in run.verdict.flags
