"""File names are safe and stable; command lines survive a shell."""

from __future__ import annotations

import dataclasses
import re
import shlex

from fa_registry.protocol.grouping import groups
from fa_registry.records import Recipe
from fa_registry.reporting.naming import command, group_label, short_names, slug


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
    assert command(spec) == (
        "mlflow run . -e train --env-manager local -P method=dfa -P architecture=resmlp -P dataset=digits -P seed=42"
        " -P epochs=30"
        " -P device=cpu -P penalty=0.01"
        " -P settings=architecture.d_hidden=256,architecture.num_blocks=4,architecture.residual=true,"
        "architecture.terminal_ln=true,architecture.w2_std=0.01,learning_rate=0.003"
    )


def test_a_hostile_method_stays_one_word_of_the_command(record):
    spec = dataclasses.replace(record("dfa", 42, 0.8, 1.0, 0.1, 0.1).spec, method="dfa; rm -rf $(HOME) '`\n")
    assert "method=dfa; rm -rf $(HOME) '`\n" in shlex.split(command(spec))


def test_the_command_of_an_adopted_run_adopts_the_file_and_trains_nothing(record):
    spec = dataclasses.replace(record("dfa", 42, 0.8, 1.0, 0.1, 0.1).spec, weights="ab12", penalty=0.01)
    line, _, remark = command(spec).partition("  # ")
    assert line.startswith(
        "fa-registry adopt WEIGHTS --method dfa --architecture resmlp --dataset digits --seed 42 --epochs 30"
    )
    assert "--penalty 0.01 --set architecture.d_hidden=256" in line and "mlflow" not in line
    assert remark == "WEIGHTS: the file with SHA-256 ab12"


def test_adopted_runs_have_a_form_of_their_own_whatever_their_files(report):
    group = groups(report)[0]

    def adopted(weights):
        record = group.runs[0].record
        spec = dataclasses.replace(record.spec, weights=weights)
        return dataclasses.replace(
            group, runs=(dataclasses.replace(group.runs[0], record=dataclasses.replace(record, spec=spec)),)
        )

    assert slug(adopted("ab12")) == slug(adopted("cd34")) != slug(group)


def test_names_lose_options_that_do_not_tell_them_apart():
    assert short_names(["bp", "dni (hidden=0)"], 20) == ["bp", "dni"]
    assert short_names(["ep (steps=1)", "ep (steps=2)"], 20) == ["ep (steps=1)", "ep (steps=2)"]


def test_names_cut_to_one_text_are_still_distinct():
    names = short_names(["m" * 30 + "a", "m" * 30 + "b"], 12)
    assert len(set(names)) == 2 and all(len(name) <= 12 for name in names)
