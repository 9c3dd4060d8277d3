"""The studies of remedies in their short form: every recipe trains, and the analysis has one row for each."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.conftest import commands_in

SHORT = "--scale 0.05 --seeds 42 --device cpu --set architecture.num_blocks=2"


@pytest.mark.long
@pytest.mark.parametrize(
    ("study", "changes", "margin"),
    [
        ("remedies", "architecture.d_hidden=16 --replace-dataset digits", "percentage points"),
        ("remedies_tokens", "architecture.d_hidden=8,batch_size=512", "nats per token"),
    ],
)
def test_every_recipe_trains_and_is_a_row(workplace, study, changes, margin):
    call = commands_in(workplace)
    settings, *rest = changes.split()
    command = f"fa-registry run {study} {SHORT},{settings}"
    done = call(*command.split(), *rest, timeout=3600)
    assert done.returncode == 0, done.stderr
    report = json.loads((workplace / "reports" / "audit.json").read_text(encoding="utf-8"))
    assert {run["record"]["integrity"]["state"] for run in report["runs"]} == {"verified"}
    asked = f"fa-registry analyse remedies --study {study} {SHORT},{settings} --json --trust-logged"
    found = json.loads(call(*asked.split(), *rest, timeout=600).stdout)
    table = found["analyses"][0]["tables"][0] if "analyses" in found else found["tables"][0]
    recipes = [row["recipe"]["text"] for row in table["rows"]]
    assert (
        len(set(recipes)) == len(recipes) == 23
    )  # bp, seven recipes of fa and of dfa, and two of four learned feedbacks
    assert {row["epochs"]["reading"] for row in table["rows"]} == {1.0}
    (column,) = (column for column in table["columns"] if column["name"] == "margin")
    assert column["unit"] == margin and all(isinstance(row["margin"]["reading"], float) for row in table["rows"])
