"""list, show, doctor, report: what people and machines read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.records import RunRecord
from tests.workflows.test_audit import AUDIT, run_of


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("methods", {"bp", "dfa", "fa"}),
        ("architectures", {"resmlp"}),
        ("datasets", {"digits"}),
        ("editions", {"2026-04", "2026-05", "2026-05:strict", "2026-11"}),
        ("analyses", {"ablation", "first-fire", "sensitivity"}),
        ("studies", {"digits"}),
        (
            "diagnostics",
            {"rho", "stability", "h_norm", "g_norm", "gain", "fidelity", "gamma", "aggregates", "norm_ratio"},
        ),
    ],
)
def test_list_names_every_member_with_its_file_and_line(registry, family, expected):
    rows = json.loads(registry("list", family, "--json").stdout)
    assert expected <= {row["name"] for row in rows}
    assert all(row["line"] and Path(row["file"]).is_file() for row in rows)
    assert registry("list", family).exit_code == 0


def test_an_unknown_family_is_a_usage_error(registry):
    result = registry("list", "method")
    assert result.exit_code == 2 and "did you mean 'methods'" in result.stderr


def test_show_prints_the_record_also_by_the_first_characters_of_its_id(trained):
    run_id = run_of("dfa").run_id
    record = jsonio.decode(RunRecord, json.loads(trained("show", run_id[:8], "--json").stdout))
    assert record.run_id == run_id
    text = trained("show", run_id).stdout
    assert "gamma" in text and f"{record.measurements.scalars['accuracy'].value:.4g}" in text


def test_show_of_an_unknown_run(trained):
    result = trained("show", "zzzz")
    assert result.exit_code == 2 and "0 runs begin so" in result.stderr


def test_doctor_is_content_here_and_not_with_a_store_it_cannot_use(registry):
    good = registry("doctor", "--json")
    assert good.exit_code == 0 and all(row["ok"] for row in json.loads(good.stdout))
    bad = registry("doctor", "--store", "file:mlruns", "--json")
    assert bad.exit_code == 1
    assert [row["check"] for row in json.loads(bad.stdout) if not row["ok"]] == ["store"]


def test_rendering_again_gives_the_same_bytes(trained, workplace):
    trained(*AUDIT)
    result = trained("report", "reports/audit.json", "--out", "again", "--json")
    first = {path.relative_to("reports"): path.read_bytes() for path in Path("reports").rglob("*") if path.is_file()}
    again = {path.relative_to("again"): path.read_bytes() for path in Path("again").rglob("*") if path.is_file()}
    assert first == again and len(json.loads(result.stdout)) == len(first)


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_every_verb_has_help_with_examples(registry, verb):
    text = registry(verb, "--help").stdout
    assert f"fa-registry {verb}" in text.split("Examples:")[1]


def test_every_verb_prints_json():
    without = [
        name
        for name, command in main.commands.items()
        if "--json" not in {opt for p in command.params for opt in p.opts}
    ]
    assert without == []
