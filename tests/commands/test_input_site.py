"""A study on mlp, whose site 0 is the input: D4 judges the sites that learn, and no page takes anything back for site 0."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.long

STUDY = """
name = "plain"
title = "On a plain network"
edition = "2026-12"
cost = "seconds"

[recipe]
epochs = 20

[controls]
frozen = true

[[grid]]
methods = ["dfa", "weight_fa"]
architectures = ["mlp"]
datasets = ["digits"]
seeds = [1]
architecture_options = { d_hidden = 64, num_blocks = 2 }
"""


@pytest.fixture
def pages(registry, workplace):
    """The folder of the audit's pages, and its report."""
    (workplace / "plain").mkdir()
    (workplace / "plain" / "study.toml").write_text(STUDY, encoding="utf-8")
    assert registry("study", "plain", "--jobs", "1", "--device", "cpu").exit_code == 0
    result = registry("audit", "--study", "plain", "--replay", "off", "--json")
    return workplace / "reports", json.loads(result.stdout)["report"]


def test_d4_is_specific_and_the_forms_take_nothing_back_for_site_0(pages):
    folder, report = pages
    runs = [run for run in report["runs"] if run["record"]["spec"]["control"] == "none"]
    assert {run["record"]["spec"]["method"] for run in runs} == {"dfa", "weight_fa"}
    for run in runs:
        assert run["record"]["integrity"]["state"] == "verified"
        assert run["record"]["measurements"]["conventions"]["first_credited_site"] == 1
        assert run["record"]["measurements"]["conventions"]["gamma_null_draws"] == 99
        (credit,) = [finding for finding in run["findings"] if finding["rule"] == "D4"]
        assert (credit["state"], credit["site"] in (1, 2)) == ("SPECIFIC", True)
    forms = [path.read_text(encoding="utf-8") for path in sorted((folder / "forms").glob("*.md"))]
    assert len(forms) == 2 and not any("NOT SPECIFIC" in form for form in forms)
