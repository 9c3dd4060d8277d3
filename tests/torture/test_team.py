"""The short form of `make team`: one seed, one epoch."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import skipped
from tests.helpers.team import missing
from tests.torture.team import main


@pytest.mark.long
def test_four_workers_audit_report_verify_and_promote_through_a_server_with_users_postgresql_and_s3(capsys):
    if missing():
        skipped(missing())
    assert main(["--epochs", "1", "--seeds", "42"]) == 0, capsys.readouterr().err
    verbs = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert verbs == ["server", "work", "audit", "report", "verify", "promote"]
