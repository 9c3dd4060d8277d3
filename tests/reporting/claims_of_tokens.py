"""Rows of the table of claims for runs whose main metric is the loss per token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fa_registry.protocol.evidence_rules import CREDIT, DATA, NETWORK, TASK
from fa_registry.records import Reading, RunAudit
from tests.reporting.judged_runs import CLEARS, SHARE, Row, a_run, depth, row, scale
from tests.reporting.report_changes import with_record
from tests.reporting.sample_reports import a_finding


def of_tokens(run: RunAudit) -> RunAudit:
    """The same run with a loss per token instead of an accuracy."""
    measured = run.record.measurements
    scalars = {name: value for name, value in measured.scalars.items() if name != "accuracy"}
    measured = dataclasses.replace(measured, scalars={**scalars, "token_loss": Reading(1.2)})
    return with_record(run, measurements=measured)


def rows_of_tokens() -> Iterator[Row]:
    """Where the loss per token is the main metric, it has every sentence that an accuracy has."""
    clears = depth("CLEARS", "pass", 0.3, (0.2, 0.4), 0.05, quantity="margin_nats")
    passes, accuracy = of_tokens(a_run(clears)), a_run(CLEARS)
    yield row("trained depth", passes, accuracy)
    part = of_tokens(a_run(clears, **SHARE))
    yield row("trained part", part, a_run(CLEARS, **SHARE))
    only_scale = a_run(scale("OK", "pass"))
    yield row("passes without depth", of_tokens(only_scale), only_scale)
    rules = {"near backpropagation": CREDIT, "own task": TASK, "test in train": DATA, "answers looked up": NETWORK}
    for key, rule in rules.items():
        found = a_run(clears, a_finding(rule, "warn", quantity=rule, observed=Reading(None, "why"), state="STATE"))
        yield row(key, of_tokens(found), found)
    stated = depth("UNDECIDED", "warn", 0.3, (-0.2, 0.8), 0.05, quantity="margin_nats", stated=True)
    doubted = a_run(dataclasses.replace(stated, reference_run_id="f" * 32), verdict="warn")
    yield row("undecided", of_tokens(doubted), doubted)
    by_author = a_run(stated, verdict="warn")
    yield row("undecided", of_tokens(by_author), by_author)
