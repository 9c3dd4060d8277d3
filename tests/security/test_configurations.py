"""A run that claims another configuration may leave its audit undecided: that is a warning, and never a pass."""

from __future__ import annotations

import pytest

from fa_registry.records import Flag
from fa_registry.records.configurations import UNDECIDABLE
from fa_registry.tracking import schema
from tests.security.conftest import integrity_of, judged
from tests.security.test_editions import loose

pytestmark = pytest.mark.long

ATTACKED = {"method": "bp", "seed": 2, "control": "none"}
METRIC = "feature_drift_blocks"  # of the end of a run alone: no table of the store repeats it
OTHER = {"processor": "Another processor, AVX2"}


def change_run(store, run_id: str, by: float, conventions: dict[str, str]) -> None:
    """Add to one metric in the run's files, write these settings into its conventions, and compute the digests again."""

    def change(held):
        held["scalars"][METRIC] += by
        held["conventions"] |= conventions

    store.change_json(run_id, schema.MEASUREMENTS, change)
    store.write_manifest(run_id)


@pytest.fixture
def passing(store, audit):
    """audit() by an edition that passes this run as long as nothing is wrong with its evidence."""
    path = loose(store, "loose")
    return lambda: audit("--study", "tiny", "--edition", str(path))


@pytest.mark.parametrize(
    "claimed",
    [OTHER, pytest.param({"fingerprint": "0" * 16}, marks=pytest.mark.long)],
    ids=["processor", "fingerprint"],
)
def test_a_changed_metric_with_a_claimed_configuration_is_a_warning(store, passing, claimed):
    run_id = store.run_id(**ATTACKED)
    change_run(store, run_id, 1e-3, claimed)
    code, report = passing()
    verdicts = {run.record.run_id: run.verdict for run in judged(report, method="bp", control="none")}
    assert code in (0, 1) and not report.excluded
    assert (verdicts[run_id].outcome, verdicts[run_id].flags) == ("warn", (Flag("metrics", "cannot tell here"),))
    assert {verdict.outcome for other, verdict in verdicts.items() if other != run_id} == {"pass"}
    integrity = integrity_of(report, run_id)
    assert integrity.state == "unverifiable" and integrity.details[0].startswith(UNDECIDABLE)
    assert all(value in integrity.details[0] for value in claimed.values())


@pytest.mark.parametrize(
    ("by", "claimed"), [(1e-7, {}), (0.5, OTHER)], ids=["a last digit, no claim", "a gross change, another processor"]
)
def test_what_no_configuration_explains_is_a_mismatch(store, audit, by, claimed):
    run_id = store.run_id(**ATTACKED)
    change_run(store, run_id, by, claimed)
    code, report = audit()
    assert code == 3 and [gap.run_id for gap in report.excluded] == [run_id]
    assert integrity_of(report, run_id).state == "mismatch"


def test_a_claimed_configuration_alone_changes_no_verdict(store, passing):
    """The metrics that are judged are the recomputed ones, and all agree: nothing is gained, and nothing is lost."""
    run_id = store.run_id(**ATTACKED)
    change_run(store, run_id, 0.0, OTHER)
    code, report = passing()
    assert not report.excluded and integrity_of(report, run_id).state == "verified"
    assert {run.verdict.outcome for run in judged(report, method="bp", control="none")} == {"pass"}
