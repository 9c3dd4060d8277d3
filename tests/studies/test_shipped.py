"""The studies that ship with the package: what each of them is made of, with and without its variant."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

from fa_registry import architectures, bundled_files, methods
from fa_registry.studies.study import load_study, names

CPU = {"device": "cpu"}
ON_A_LAPTOP = ("digits", "methods", "penalty", "ladder", "random_targets", "synthetic", "toy_lq")
NEED_NOTHING = {"digits", "digits_centred", "random_targets:digits", "lq", "teacher_student"}


def counted(study) -> dict[str, int]:
    """Method label → trained runs."""
    labels = sorted(spec.method_label for spec in study.specs if spec.control == "none")
    return {label: len(list(group)) for label, group in groupby(labels)}


@pytest.mark.parametrize("name", names())
def test_every_run_of_a_study_and_of_its_variant_can_be_paired_with_what_it_runs_on(name):
    variants = (CPU, {**CPU, "data": "digits", "scale": "0.02"})
    for overrides in variants[: 1 if "tokens" in name else 2]:  # a language model has no variant on images
        for spec in load_study(name, overrides).specs:
            assert methods.CATALOG.get(spec.method).card.supports(spec.architecture), spec
            assert spec.architecture in architectures.CATALOG.names()


def test_paper_is_what_the_published_script_covers():
    study = load_study("paper", CPU)
    assert counted(study) == {"bp": 15, "fa": 15, "dfa": 18, "dfa+pen λ=0.0001": 3, "dfa+pen λ=0.01": 3}
    settings = {study.labels[identity]: specs for identity, specs in study.settings.items()}
    assert {labels: specs[0].epochs for labels, specs in settings.items()} == {
        ("main",): 100, ("vit_mini",): 60, ("small_resnet",): 100, ("wide and shallow",): 100, ("cifar100",): 100, ("penalty",): 30
    }  # fmt: skip
    assert {spec.seed for spec in settings[("wide and shallow",)]} == {1, 2, 5}
    for specs in settings.values():
        trained = {spec.seed for spec in specs if spec.control == "none"}
        assert len(trained) == 3 and {spec.seed for spec in specs if spec.control == "frozen"} == trained


@pytest.mark.parametrize("name", names())
def test_every_run_has_all_controls_of_its_setting_and_seed(name):
    """toy_lq and setting 17 of paper-full have no main metric, so nothing is compared with a control."""
    study = load_study(name, CPU)
    if "runs" in study.cost:
        assert study.cost.startswith(f"{len(study.specs)} runs")
    for specs in study.settings.values():
        seeds_of = {
            control: {spec.seed for spec in specs if spec.control == control}
            for control in ("none", "frozen", "frozen_long", "shallow")
        }
        if specs[0].dataset != "lq":
            assert len(set(map(frozenset, seeds_of.values()))) == 1, seeds_of


def test_the_variant_of_paper_merges_its_two_cifars():
    variant = load_study("paper", {**CPU, "data": "digits", "scale": "0.02"})
    assert {spec.dataset for spec in variant.specs} == {"digits"} and {
        spec.setting.epochs for spec in variant.specs
    } == {1, 2}
    assert ("main", "cifar100") in variant.labels.values() and len(variant.settings) == 5


def test_paper_full_is_at_least_the_papers_runs_methods_and_settings():
    study = load_study("paper-full", CPU)
    rules = {f"{spec.method}{'+pen' if spec.penalty else ''}" for spec in study.specs if spec.control == "none"}
    assert len(study.specs) >= 125 and len(rules) >= 10 and len(study.settings) >= 17
    assert f"{len(study.specs)} runs" in study.cost
    paper = {spec.identity for spec in load_study("paper", CPU).specs}
    assert paper <= {spec.identity for spec in study.specs}


def test_paper_fulls_readme_lists_its_seventeen_settings():
    text = (bundled_files.projects() / "paper-full" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE)
    assert [int(number) for row in rows for number in row.split(",")] == list(range(1, 18))
    file = (bundled_files.projects() / "paper-full" / "study.toml").read_text(encoding="utf-8")
    assert sorted({int(number) for number in re.findall(r"^# (\d+)\b", file, re.MULTILINE)}) == list(range(1, 18))
    labels = {
        "student" if label.startswith("student") else label
        for one in load_study("paper-full", CPU).labels.values()
        for label in one
    }
    assert len(labels) == 17
    assert "list of the seventeen settings is not available" in text


@pytest.mark.parametrize("name", ON_A_LAPTOP)
def test_what_is_for_a_laptop_needs_no_files(name):
    used = {spec.dataset for spec in load_study(name, CPU).specs}
    assert {dataset if dataset in NEED_NOTHING else dataset.partition(":")[0] for dataset in used} <= NEED_NOTHING


def test_synthetic_pairs_every_student_with_a_teacher_of_its_own_kind():
    specs = load_study("synthetic", CPU).specs
    pairs = {(spec.architecture_options["alpha"], float(spec.dataset.partition(":")[2] or 1)) for spec in specs}
    assert pairs == {(alpha, alpha) for alpha in (0.0, 0.25, 0.5, 1.0)}


@pytest.mark.parametrize("name", names())
def test_every_study_but_the_calibration_says_how_to_read_it(name):
    text = bundled_files.projects() / name / "README.md"
    assert name == "calibration" or name.replace("-", "") in text.read_text(encoding="utf-8").replace("-", "")
