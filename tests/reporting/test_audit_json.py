"""audit.json is written run by run, and never with a number or a type that JSON does not have."""

from __future__ import annotations

import json
import math

import pytest

from fa_registry import jsonio
from fa_registry.reporting.files.audit_json import pieces, write_report


def test_no_piece_holds_more_than_a_run(rich):
    lengths = [len(piece) for piece in pieces(rich)]
    one_run = max(len(json.dumps(jsonio.encode(run))) for run in rich.runs)
    assert max(lengths) <= one_run and len(lengths) > 4 * len(rich.runs)


def test_every_run_stands_in_a_line_of_its_own(rich, tmp_path):
    write_report(rich, tmp_path / "audit.json")
    lines = (tmp_path / "audit.json").read_text("utf-8").splitlines()
    for run in rich.runs:
        assert sum(f'"run_id": "{run.record.run_id}", "name"' in line for line in lines) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        "".join(pieces({"x": value}))


def test_what_json_does_not_know_is_refused():
    with pytest.raises(TypeError, match="cannot write set as JSON"):
        "".join(pieces({"x": {1}}))
