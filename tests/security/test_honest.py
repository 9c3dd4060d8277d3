"""An untouched store: none of the attack helpers may raise an alarm by itself."""

import pytest

from tests.security.conftest import judged


@pytest.mark.long
def test_an_honest_store_is_judged_whole(drawn, audit):
    code, report = audit(published=True)
    assert code in (0, 1)  # nothing incomplete, no integrity failure
    assert not report.excluded
    assert {run.record.integrity.state for run in report.runs} == {"verified"}
    assert len(judged(report, method="dfa")) == 3


def test_recording_again_what_is_unchanged_raises_no_alarm(store, audit):
    for run_id in store.run_ids():
        store.write_manifest(run_id)
    assert audit()[0] in (0, 1)
