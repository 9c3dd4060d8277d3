"""File names are safe and stable; command lines survive a shell."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Recipe, RunRecord
from fa_registry.reporting.labels import command, group_label, short_names, slug
from fa_registry.reporting.pages.notes import note_context
from fa_registry.reporting.report_index import Sources
from tests.reporting.page import terminal_rows, written
from tests.reporting.runs import SEEDS, full, make_record
from tests.reporting.sample_reports import make_report


def test_a_slug_is_safe_and_its_own(report, hostile):
    spec = dataclasses.replace(report.runs[0].record.spec, method="../../etc/passwd")
    record = dataclasses.replace(report.runs[0].record, spec=spec, setting=hostile)
    changed = dataclasses.replace(report, runs=(dataclasses.replace(report.runs[0], record=record), *report.runs[1:]))
    slugs = [slug(group) for group in groups(changed)]
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) for name in slugs)
    assert len(set(slugs)) == len(slugs)


def test_a_slug_does_not_depend_on_seeds_or_on_what_else_is_audited(report):
    alone = dataclasses.replace(report, runs=report.runs[3:4])
    assert slug(groups(alone)[0]) == next(slug(group) for group in groups(report) if group.method == "dfa")


def test_variants_of_a_method_have_their_own_label_and_slug(report):
    group = groups(report)[0]
    record = group.runs[0].record
    variant = dataclasses.replace(
        record, spec=dataclasses.replace(record.spec, method_options={"beta": 0.5, "clip": True})
    )
    other = dataclasses.replace(group, runs=(dataclasses.replace(group.runs[0], record=variant),))
    assert group_label(other) == "bp (beta=0.5,clip=true)"
    assert slug(other) != slug(group)


def test_the_command_holds_what_differs_from_the_defaults(record):
    spec = dataclasses.replace(
        record("dfa", 42, 0.8, 1.0, 0.1, 0.1).spec, penalty=0.01, recipe=Recipe(learning_rate=0.003)
    )
    words = shlex.split(command(spec))
    assert words[:3] == ["mlflow", "run", "."] and words.count("-P") == 8
    given = dict(word.split("=", 1) for flag, word in itertools.pairwise(words) if flag == "-P")
    settings = set(given.pop("settings").split(","))
    assert given == {
        **{"method": "dfa", "architecture": "resmlp", "dataset": "digits"},
        **{"seed": "42", "epochs": "30", "device": "cpu", "penalty": "0.01"},
    }
    assert settings == {
        *("architecture.d_hidden=256", "architecture.num_blocks=4", "architecture.residual=true"),
        *("architecture.terminal_ln=true", "architecture.w2_std=0.01", "learning_rate=0.003"),
    }


def test_a_hostile_method_stays_one_word_of_the_command(record):
    spec = dataclasses.replace(record("dfa", 42, 0.8, 1.0, 0.1, 0.1).spec, method="dfa; rm -rf $(HOME) '`\n")
    assert f"method={spec.method}" in shlex.split(command(spec))


def test_the_command_of_an_adopted_run_adopts_the_file_and_trains_nothing(record):
    spec = dataclasses.replace(record("dfa", 42, 0.8, 1.0, 0.1, 0.1).spec, weights="ab12", penalty=0.01)
    line, _, remark = command(spec).partition("  # ")
    words = shlex.split(line)
    assert words[:3] == ["fa-registry", "adopt", "WEIGHTS"] and "mlflow" not in line
    given = dict(itertools.pairwise(words[3:]))
    assert (given["--method"], given["--seed"], given["--penalty"]) == ("dfa", "42", "0.01")
    assert (given["--architecture"], given["--dataset"], given["--epochs"]) == ("resmlp", "digits", "30")
    assert "--set architecture.d_hidden=256" in line and remark.startswith("WEIGHTS: ") and "SHA-256 ab12" in remark


def test_adopted_runs_have_a_form_of_their_own_whatever_their_files(report):
    group = groups(report)[0]

    def adopted(weights):
        record = group.runs[0].record
        spec = dataclasses.replace(record.spec, weights=weights)
        return dataclasses.replace(
            group, runs=(dataclasses.replace(group.runs[0], record=dataclasses.replace(record, spec=spec)),)
        )

    assert slug(adopted("ab12")) == slug(adopted("cd34")) != slug(group)


def test_names_lose_options_that_do_not_distinguish_them():
    assert short_names(["bp", "dni (hidden=0)"], 20) == ["bp", "dni"]
    assert short_names(["ep (steps=1)", "ep (steps=2)"], 20) == ["ep (steps=1)", "ep (steps=2)"]


def test_names_cut_to_one_text_are_still_distinct():
    names = short_names(["m" * 30 + "a", "m" * 30 + "b"], 12)
    assert len(set(names)) == 2 and all(len(name) <= 12 for name in names)


def ep_run(contrast: str, seed: int) -> RunRecord:
    made = full(make_record("ep", seed, 0.9, 3.0, 0.1, 0.5))
    spec = dataclasses.replace(made.spec, method_options={"beta": 0.5, "contrast": contrast, "steps": 20})
    return dataclasses.replace(made, spec=spec, run_id=spec.identity[:32])


@pytest.fixture(scope="module")
def ep_report():
    runs = [ep_run(contrast, seed) for contrast in ("parameter", "state") for seed in SEEDS]
    frozen = [full(make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen")) for seed in SEEDS]
    card = {"options": {"contrast": {"default": "parameter", "choices": ["parameter", "state"]}}}
    card["options"] |= {"beta": {"default": 0.5, "choices": []}, "steps": {"default": 10, "choices": []}}
    return make_report([*runs, *frozen], "2026-12", cards={"methods/ep": card})


def test_every_page_that_judges_ep_names_its_contrast_also_at_its_default(ep_report, tmp_path):
    files = written(ep_report, tmp_path)
    pages = {page: text for page, text in files.items() if not page.startswith(("forms/bp", "figures/"))}
    assert {suffix for page in pages for suffix in [page.rpartition(".")[2]]} >= {
        "html",
        "md",
        "tex",
        "csv",
        "xml",
        "json",
    }
    forms = {page: text for page, text in pages.items() if page.startswith("forms/ep")}
    assert len(forms) == 4
    for page, printed in pages.items():
        text = printed.replace(r"\allowbreak{}", "")
        named = {
            word for word in ("parameter", "state") if f"contrast={word}" in text or f'"contrast": "{word}"' in text
        }
        if re.search(r"\bep\b", text):  # a file that identifies runs by their ids alone names no method
            assert len(named) == (1 if page in forms else 2), page


def test_a_note_and_the_terminals_table_name_it_too(ep_report):
    for run in ep_report.runs[:4]:
        contrast = run.record.spec.method_options["contrast"]
        assert f"contrast={contrast}" in note_context(run, Sources.of(ep_report)).method
    named = {f"ep (beta=0.5,contrast={word},steps=20)" for word in ("parameter", "state")}
    assert set(terminal_rows(ep_report)) >= named
