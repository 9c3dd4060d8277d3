"""Rows of the table of claims for runs whose main metric is the loss per token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fa_registry.metrics import label_of
from fa_registry.protocol.evidence_rules import CREDIT, DATA, NETWORK, TASK
from fa_registry.records import Reading, RunAudit
from tests.reporting.judged_runs import CLEARS, SHARE, Row, a_run, depth, row, scale
from tests.reporting.sample_reports import a_finding


def of_tokens(run: RunAudit) -> RunAudit:
    """The same run with a loss per token instead of an accuracy."""
    measured = run.record.measurements
    scalars = {name: value for name, value in measured.scalars.items() if name != "accuracy"}
    measured = dataclasses.replace(measured, scalars={**scalars, "token_loss": Reading(1.2)})
    return dataclasses.replace(run, record=dataclasses.replace(run.record, measurements=measured))


def rows_of_tokens() -> Iterator[Row]:
    """Where the loss per token is the main metric, it has every sentence that an accuracy has."""
    clears = depth("CLEARS", "pass", 0.3, (0.2, 0.4), 0.05, quantity="margin_nats")
    passes, accuracy = of_tokens(a_run(clears)), a_run(CLEARS)
    yield row(
        "trained depth",
        "may be reported as the loss per token of a network with trained blocks",
        passes,
        accuracy,
    )
    part = of_tokens(a_run(clears, **SHARE))
    yield row(
        "trained part",
        "not as the loss per token of a network whose blocks are all trained",
        part,
        a_run(CLEARS, **SHARE),
    )
    only_scale = a_run(scale("OK", "pass"))
    smaller = (
        "requires a smaller loss per token than frozen random blocks reach. The loss per token must not be credited to"
    )
    yield row("passes without depth", smaller, of_tokens(only_scale), only_scale)
    for key, rule, text in (
        ("near backpropagation", CREDIT, "The loss per token may be claimed only for backpropagation"),
        ("own task", TASK, "The loss per token must not be compared with that of a built-in task: why"),
        (
            "test in train",
            DATA,
            "The loss per token must not be claimed for sequences that were not used in training: why",
        ),
        (
            "answers looked up",
            NETWORK,
            "The loss per token must not be claimed for a network that predicts a token from earlier tokens only: why",
        ),
    ):
        found = a_run(clears, a_finding(rule, "warn", quantity=rule, observed=Reading(None, "why"), state="STATE"))
        yield row(key, text, of_tokens(found), found)
    stated = depth("UNDECIDED", "warn", 0.3, (-0.2, 0.8), 0.05, quantity="margin_nats", stated=True)
    text = "; the frozen control is not proven to be frozen, so its loss per token counts only as stated by the author"
    doubted = a_run(dataclasses.replace(stated, reference_run_id="f" * 32), verdict="warn")
    yield row("undecided", text, of_tokens(doubted), doubted)
    text = f"; the {label_of('frozen_token_loss')} is stated by the author, not measured here"
    by_author = a_run(stated, verdict="warn")
    yield row("undecided", text, of_tokens(by_author), by_author)
