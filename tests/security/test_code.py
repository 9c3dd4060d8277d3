"""Attacks on the code behind a run: another method under the name, a method edited after training, a forged conformance."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fa_registry import jsonio
from fa_registry.records import Flag, RunAudit
from fa_registry.tracking import schema
from tests.helpers.plugins import NAME, Plugin, installed
from tests.helpers.stores import copy_store, made_once, working_in
from tests.security.attacks import Store
from tests.security.conftest import audited, call, judged, written_report

pytestmark = pytest.mark.long

STUDY = f"""
name = "mine"
title = "A method of another package"
edition = "2026-12"
cost = "seconds"

[recipe]
epochs = 1

[controls]
frozen = true

[[grid]]
methods = ["{NAME}"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
architecture_options = {{ d_hidden = 16, num_blocks = 2 }}
"""
TRAINED = ("study", "mine", "--jobs", "1", "--device", "cpu")
RULE = "return [inputs.error @ feedback.matrix(site + 1).T for site in range(len(inputs.hidden))]"
# Exact gradients by way of the network: what `inputs.gradients` would not give while training.
SECRETLY_BP = """import torch
        with torch.enable_grad():
            states, gradient = [state.detach().requires_grad_() for state in inputs.hidden], inputs.output_gradient
            credits = [gradient]
            for site in reversed(range(len(states) - 1)):
                state = states[site]
                above = inputs.network.step(state, inputs.network.blocks[site](state))
                (gradient,) = torch.autograd.grad(above, state, gradient)
                credits.insert(0, gradient)
        return credits

    import dataclasses
    card = dataclasses.replace(card, needs_autograd=True)"""
BY_CONFORMANCE_ALONE = ("--replay", "off")  # the replay finds it out first: test_replay.py
TURNED = ("return [inputs.error @", "return [-inputs.error @")


@dataclass(frozen=True)
class World:
    """A store with one run of another package's method and its frozen control, and the package."""

    store: Store
    plugin: Plugin

    @property
    def run_id(self) -> str:
        """The newest run of the method."""
        chosen = self.store.run_ids(method=NAME)
        started = dict(self.store.sql("SELECT run_uuid, start_time FROM runs"))
        return max(chosen, key=started.get)

    def study(self, *more: str):
        result = call(*TRAINED, *more)
        assert result.exit_code == 0, result.output
        return result

    def audit(self, *more: str, published: bool = False) -> tuple[int, RunAudit]:
        """The exit code, and what is reported about the method's one run; more: options, or with `--run` what to audit instead."""
        chosen = () if "--run" in more else ("--study", "mine", "--device", "cpu")
        code, report = audited(self.store.folder, *chosen, *more, published=published)
        (run,) = judged(report, method=NAME)
        return code, run

    def form(self) -> str:
        (page,) = (self.store.folder / "pages" / "forms").glob("orthogonal-dfa-*.html")
        return page.read_text(encoding="utf-8")

    def forge(self, **fields: object) -> None:
        """Other words in the run's provenance, recorded again."""
        self.store.change_json(self.run_id, schema.PROVENANCE, lambda held: held.update(fields))
        self.store.write_manifest(self.run_id)


@contextmanager
def at(folder: Path, site: Path) -> Iterator[World]:
    """The world whose store is in `folder`, with the package installed into the empty folder `site`."""
    site.mkdir()
    with working_in(folder), installed(site) as plugin:
        yield World(Store(folder), plugin)


def begin(folder: Path, empty_store: Path) -> None:
    """An empty store, and the study."""
    shutil.copy(empty_store, folder / "mlflow.db")
    (folder / "mine").mkdir()
    (folder / "mine" / "study.toml").write_text(STUDY, encoding="utf-8")


@pytest.fixture
def untrained(tmp_path, empty_store) -> Iterator[World]:
    folder = tmp_path / "store"
    folder.mkdir()
    begin(folder, empty_store)
    with at(folder, tmp_path / "site") as world:
        yield world


def trained_once(factory: pytest.TempPathFactory, empty_store: Path, name: str, *edit: str) -> Path:
    """The folder of a store that holds the study, trained by the package as it is or as the edit leaves it; for copies."""

    def train(folder: Path) -> None:
        begin(folder, empty_store)
        with at(folder, factory.mktemp("sites") / "site") as world:
            if edit:
                world.plugin.edit(*edit)
            world.study()

    return made_once(factory, name, train)


@pytest.fixture
def world(tmp_path_factory, tmp_path, empty_store) -> Iterator[World]:
    """The study is trained."""
    copy_store(trained_once(tmp_path_factory, empty_store, "mine"), tmp_path / "store")
    with at(tmp_path / "store", tmp_path / "site") as world:
        yield world


@pytest.fixture
def secretly_bp(tmp_path_factory, tmp_path, empty_store) -> Iterator[World]:
    """The study is trained, by backpropagation under the method's name."""
    copy_store(trained_once(tmp_path_factory, empty_store, "mine-by-bp", RULE, SECRETLY_BP), tmp_path / "store")
    with at(tmp_path / "store", tmp_path / "site") as world:
        world.plugin.edit(RULE, SECRETLY_BP)
        yield world


def of(run: RunAudit, rule: str):
    return next((finding for finding in run.findings if finding.rule == rule), None)


def cached(store: Store) -> list[Path]:
    return list((store.folder / ".fa_registry" / "conformance").glob("*.json"))


def test_an_honest_method_of_another_package_is_checked_and_named(world):
    recorded = world.store.json(world.run_id, schema.PROVENANCE)
    entry = recorded["code"][f"methods/{NAME}"]
    assert (entry["package"], entry["version"], len(entry["digest"])) == ("orthogonal-feedback", "0.1.0", 64)
    assert recorded["code"]["architectures/resmlp"] == {"version": 1}
    assert recorded["conformance"] == {"state": "passed", "failures": [], "architecture": "resmlp", "sign": "tested"}
    assert len(cached(world.store)) == 1
    assert world.store.tags(world.run_id)[schema.TAG_CODE] == jsonio.digest_of(recorded["code"])
    code, run = world.audit("--replay", "auto", published=True)
    assert run.record.integrity.state == "verified"
    assert (run.record.conformance.state, of(run, "method").outcome) == ("passed", "pass")
    assert of(run, "code") is None
    assert f"sha256 {entry['digest']}" in world.form()
    world.study()
    assert len(world.store.run_ids(method=NAME)) == 1


def test_backpropagation_under_another_name_never_passes(untrained):
    untrained.plugin.edit(RULE, SECRETLY_BP)
    untrained.study()
    code, run = untrained.audit(*BY_CONFORMANCE_ALONE, published=True)
    assert (code, run.verdict.outcome) == (1, "fail")
    assert Flag("method") in run.verdict.flags
    assert of(run, "method").outcome == "fail"
    assert "not_secretly_bp" in of(run, "method").sentence


def test_a_forged_conformance_is_not_believed(secretly_bp):
    passed = {"state": "passed", "failures": [], "architecture": "resmlp"}
    secretly_bp.forge(conformance=passed)
    for path in cached(secretly_bp.store):
        path.write_text(json.dumps(passed), encoding="utf-8")
    secretly_bp.plugin.forget()
    code, run = secretly_bp.audit(*BY_CONFORMANCE_ALONE)
    assert (code, run.verdict.outcome, run.record.conformance.state) == (1, "fail", "failed")


def test_a_method_called_our_own_in_the_recorded_file_is_still_checked(secretly_bp):
    recorded = secretly_bp.store.json(secretly_bp.run_id, schema.PROVENANCE)["code"]
    secretly_bp.forge(code={**recorded, f"methods/{NAME}": {"version": 1}}, conformance={"state": "own"})
    code, run = secretly_bp.audit()
    assert (code, run.verdict.outcome, run.record.conformance.state) == (3, "incomplete", "unchecked")


def test_no_waiver_takes_back_a_failed_conformance(secretly_bp):
    waiver = f'[[waiver]]\nrule = "method"\nmethod = "{NAME}"\nreason = "trust me"\nauthor = "A. Author"\n'
    Path("waivers.toml").write_text(f'{waiver}date = "2020-01-01"\nexpiry = "2999-01-01"\n', encoding="utf-8")
    code, run = secretly_bp.audit(*BY_CONFORMANCE_ALONE, "--waivers", "waivers.toml")
    assert (code, run.verdict.outcome) == (1, "fail")


def test_a_method_edited_after_training_is_trained_again_and_the_message_says_why(world):
    before = world.store.json(world.run_id, schema.PROVENANCE)["code"][f"methods/{NAME}"]["digest"]
    first = world.run_id
    world.plugin.edit(*TURNED)
    planned = call("study", "mine", "--device", "cpu", "--dry-run", "--json")
    assert json.loads(planned.stdout)["complete"] == 1  # the control
    assert before[:8] in world.study().stderr and world.run_id != first
    assert world.store.json(first, schema.SPEC) == world.store.json(world.run_id, schema.SPEC)  # the same identity
    assert world.audit()[1].record.integrity.state == "verified"


def test_a_kept_run_of_other_code_says_why_it_cannot_be_recomputed(world):
    first = world.run_id
    world.plugin.edit(*TURNED)
    world.study("--accept-old-code")
    assert world.run_id == first
    code, run = world.audit()
    assert (code, run.verdict.outcome) == (3, "incomplete")
    assert run.record.integrity.state == "unverifiable"
    (check,) = [check for check in run.record.integrity.checks if check.subject == "code"]
    assert check.outcome == "not possible" and f"method {NAME}: " in check.detail
    assert of(run, "method").outcome == "warn"  # the code that is here is not the one that would have to be measured


def test_another_release_of_the_same_source_is_the_same_code(world):
    world.plugin.release("0.2.0")
    world.study()
    assert len(world.store.run_ids(method=NAME)) == 1
    assert world.audit()[1].record.integrity.state == "verified"


def test_a_method_that_is_not_installed_at_the_audit_is_at_most_a_statement(world):
    chosen = ("--run", world.run_id, "--run", world.store.run_id(control="frozen"))
    world.plugin.uninstall()
    code, run = world.audit(*chosen, published=True)
    assert (code, run.verdict.outcome, run.record.integrity.state) == (3, "incomplete", "unverifiable")
    assert f"unknown method '{NAME}'" in run.record.integrity.details[0]
    assert "orthogonal-feedback 0.1.0" in run.record.integrity.details[0]
    assert "pip install orthogonal-feedback==0.1.0" in world.form()
    run = world.audit(*chosen, "--trust-logged")[1]
    assert run.record.conformance.state == "stated"
    assert of(run, "method").outcome == "warn"
    assert run.verdict.outcome in ("warn", "fail")
    world.forge(conformance={"state": "failed", "failures": ["not_secretly_bp: cosine 1"], "architecture": "resmlp"})
    assert world.audit(*chosen, "--trust-logged")[1].verdict.outcome == "fail"
    for nonsense in ({"state": "own"}, {"state": 3}):
        world.forge(conformance=nonsense)
        assert world.audit(*chosen, "--trust-logged")[1].record.conformance.state == "unchecked"
    world.forge(conformance="nonsense")  # a file that no release wrote is ignored
    assert call("audit", *chosen, "--out", "pages", "--trust-logged").exit_code == 3
    (excluded,) = written_report(world.store.folder).excluded
    assert "conformance" in excluded.reason


def test_a_member_of_ours_of_another_version_is_other_code(world, monkeypatch):
    recorded = world.store.json(world.run_id, schema.PROVENANCE)["code"]
    world.forge(code={**recorded, "architectures/resmlp": {"version": 7}})
    code, run = world.audit()
    assert (code, run.verdict.outcome, run.record.integrity.state) == (3, "incomplete", "unverifiable")
    assert "architecture resmlp:" in run.record.integrity.details[0]


def test_a_rule_that_ends_its_process_does_not_answer_for_the_audit(untrained, monkeypatch):
    """Exit code 0 would say that all pass; here it is 7, since a suite that a fault ends must not end well either.

    MLflow's table says that the method is built-in, which ends no process: the run's own file is asked.
    """
    untrained.plugin.edit(RULE, f'__import__("os").environ.get("ENDS") and __import__("os")._exit(7)\n        {RULE}')
    untrained.study()
    untrained.store.sql("UPDATE params SET value = 'bp' WHERE key = 'cfg/method'")
    monkeypatch.setenv("ENDS", "yes")
    result = call("audit", "--study", "mine", "--device", "cpu", "--out", "pages")
    assert result.exit_code == 3
    assert "exit code 7" in (untrained.store.folder / "pages" / "index.html").read_text("utf-8")
