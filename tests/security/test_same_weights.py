"""Two runs never have the same weights by two different specifications; where they do by construction, no alarm is raised."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from safetensors.torch import load_file, save_file

from fa_registry import architectures
from fa_registry.evidence.duplicate_weights import may_share_weights
from fa_registry.records import Recipe
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import content_digest
from tests.builders import spec
from tests.helpers.plugins import installed_member
from tests.security.conftest import call, judged
from tests.security.test_tables import caught


def copy_weights(store, source, target, metadata=None):
    """The final weights of one run put into another, everything that describes them too, with a new manifest."""
    tensors = load_file(store.artifacts(source) / schema.FINAL)
    save_file(tensors, store.artifacts(target) / schema.FINAL, metadata)
    for name in (schema.MEASUREMENTS, schema.SERIES):
        shutil.copy(store.artifacts(source) / name, store.artifacts(target) / name)
    digest = content_digest(tensors)
    store.change_json(target, schema.PROVENANCE, lambda held: held.update(final_weights=digest))
    store.set_tag(target, schema.TAG_WEIGHTS, digest)
    columns = "key, value, timestamp, step, is_nan"
    for table in ("metrics", "latest_metrics"):
        store.sql(f"DELETE FROM {table} WHERE run_uuid = ?", target)
        copied = f"INSERT INTO {table} ({columns}, run_uuid) SELECT {columns}, ? FROM {table} WHERE run_uuid = ?"
        store.sql(copied, target, source)
    store.write_manifest(target)


def test_copied_weights_are_reported_on_both_runs(store, audit):
    """bp needs no feedback, so that every figure of a copied run comes out again but those that look at the start."""
    source, target = (store.run_id(method="bp", seed=seed, control="none") for seed in (1, 2))
    copy_weights(store, source, target, {"by": "another file digest"})
    code, report = audit()
    assert code == 3
    for one, other in ((source, target), (target, source)):
        caught(report, one, "final weights: ", other)
    assert [run.record.spec.seed for run in judged(report, method="bp", control="none")] == [3]


def test_copied_weights_are_found_in_the_rest_of_the_store(store, audit):
    source, target = (store.run_id(method="bp", seed=seed, control="none") for seed in (1, 2))
    copy_weights(store, source, target)
    code, report = audit("--run", target)
    assert code == 3
    caught(report, target, "final weights: ", source)


def test_a_tag_alone_raises_no_alarm(store, audit):
    """The other run's recorded value decides; its own edited tag makes it the mismatch."""
    honest, liar = (store.run_id(method="fa", seed=seed) for seed in (1, 2))
    store.set_tag(liar, schema.TAG_WEIGHTS, store.tags(honest)[schema.TAG_WEIGHTS])
    _, report = audit()
    caught(report, liar, "tag fa.weights")
    assert {run.record.spec.seed for run in judged(report, method="fa")} == {1, 3}


@pytest.mark.long
def test_weights_that_are_not_the_recorded_ones(store, audit):
    run_id = store.run_id(method="fa", seed=1)
    path = store.artifacts(run_id) / schema.FINAL
    tensors = load_file(path)
    name = sorted(tensors)[0]
    save_file({**tensors, name: tensors[name] * 1.0001}, path)
    store.write_manifest(run_id)
    code, report = audit()
    assert code == 3
    caught(report, run_id, "final weights: checkpoints/final.safetensors: ")


def test_one_adopted_file_under_two_methods(store, audit):
    weights = store.artifacts(store.run_id(method="bp", seed=1, control="none")) / schema.FINAL
    shutil.copy(weights, store.folder / "given.safetensors")
    shape = ("--set", "architecture.d_hidden=16,architecture.num_blocks=2")
    for method in ("bp", "fa"):
        result = call("adopt", "given.safetensors", "--method", method, "--seed", "9", "--epochs", "7", *shape)
        assert result.exit_code == 0, result.output
    ids = store.run_ids(seed=9)
    code, report = audit(*(word for run_id in ids for word in ("--run", run_id)))
    assert code == 3 and len(ids) == 2
    for run_id in ids:
        caught(report, run_id, "final weights: ")


SHAPE = {"d_hidden": 16, "num_blocks": 2}


def recipe(**changes):
    return dataclasses.replace(Recipe(), **changes)


BP = {"method": "bp"}
VIT = {"architecture": "vit_mini", "architecture_options": {**SHAPE, "broadcast": "all"}}
VIT_CLASS = {"architecture": "vit_mini", "architecture_options": {**SHAPE, "broadcast": "class"}}
LQ = {"architecture": "linear_lq", "dataset": "lq", "architecture_options": {"learn": False}}
LEARNING = {**LQ, "architecture_options": {"learn": True}}
LEGITIMATE = [
    ({**LQ, **BP}, LQ),
    ({**LQ, "epochs": 2}, {**LQ, **BP, "penalty": 0.1}),
    ({"epochs": 0}, {"epochs": 0, "method": "fa", "penalty": 0.1, "dataset": "digits_centred"}),
    ({"epochs": 0, "control": "none"}, {"epochs": 0, "control": "ladder_1"}),
    ({"recipe": recipe(learning_rate=0.0)}, {"epochs": 0}),
    ({"control": "ladder_2"}, {"control": "none"}),
    ({**BP, "control": "ladder_0"}, {**BP, "control": "frozen"}),
    ({**BP, "control": "frozen_long", "epochs": 4}, {**BP, "control": "frozen", "epochs": 4}),
    ({**BP, "recipe": recipe(credit_norm="none")}, BP),
    ({**BP, "control": "shallow"}, {**BP, "control": "shallow", "architecture_options": {**SHAPE, "num_blocks": 8}}),
    ({**BP, "control": "shallow"}, {**BP, "architecture_options": {**SHAPE, "num_blocks": 0}}),
    (
        {**BP, "control": "shallow"},
        {**BP, "control": "shallow", "architecture_options": {**SHAPE, "norm_place": "post"}},
    ),
    ({**BP, **VIT, "control": "frozen"}, {**BP, **VIT_CLASS, "control": "frozen"}),
    ({**VIT, "epochs": 0}, {**VIT_CLASS, "epochs": 0}),
    ({"epochs": 1}, {"epochs": 1, "recipe": recipe(schedule="constant")}),
    ({**BP, "control": "frozen"}, {**BP, "control": "frozen", "recipe": recipe(rate_blocks=2.0)}),
    ({"penalty": 1e-12}, {}),
    ({"penalty_embedding": 1e-12}, {}),
    ({"recipe": recipe(clip_gradient=10.0)}, {"recipe": recipe(clip_gradient=0.0)}),
    ({"recipe": recipe(clip_credit=10.0)}, {"recipe": recipe(clip_credit=20.0)}),
    ({"recipe": recipe(weight_decay=1e-9)}, {"recipe": recipe(weight_decay=0.0)}),
    ({"weights": "a"}, {"weights": "b", "seed": 7, "epochs": 30}),
    ({"weights": "a"}, {}),
]
FINDINGS = [
    ({**LEARNING, **BP}, LEARNING),
    (LQ, {**LQ, "seed": 43}),
    (LQ, LEARNING),
    (VIT, VIT_CLASS),
    ({}, {"seed": 43}),
    ({}, {"method": "fa"}),
    ({"epochs": 0}, {"epochs": 0, "seed": 43}),
    ({"epochs": 0}, {"epochs": 0, "control": "shallow"}),
    ({"control": "ladder_1"}, {}),
    ({"control": "ladder_0"}, {**BP, "control": "frozen"}),
    ({"recipe": recipe(credit_norm="none")}, {}),
    ({}, {"recipe": recipe(schedule="constant")}),
    ({"penalty": 0.01}, {}),
    ({"penalty_embedding": 0.01}, {}),
    ({}, {"architecture_options": {**SHAPE, "norm_place": "post"}}),
    ({**BP, "control": "shallow"}, {**BP, "control": "shallow", "architecture_options": {**SHAPE, "norm": "rms"}}),
    ({"recipe": recipe(warmup_epochs=1)}, {}),
    ({"recipe": recipe(rate_blocks=2.0)}, {}),
    ({**BP, "control": "frozen"}, {**BP, "control": "shallow"}),
    *(({**BP, "control": "deep_supervision"}, {**BP, "control": other}) for other in ("none", "frozen", "shallow")),
    ({**BP, "control": "frozen_long", "epochs": 4}, {**BP, "control": "frozen", "epochs": 2}),
    ({"weights": "a"}, {"weights": "a", "method": "fa"}),
    ({"weights": "a"}, {"seed": 43}),
]


@pytest.mark.parametrize(("one", "other"), LEGITIMATE)
def test_what_is_equal_by_construction_is_no_finding(one, other):
    assert may_share_weights(spec(**one), spec(**other)) and may_share_weights(spec(**other), spec(**one))


@pytest.mark.parametrize(("one", "other"), FINDINGS)
def test_what_has_no_reason_to_be_equal_is_one(one, other):
    assert not may_share_weights(spec(**one), spec(**other)) and not may_share_weights(spec(**other), spec(**one))


STILL = """
import dataclasses
from fa_registry.architectures.resmlp import ResMLP

class Still(ResMLP):
    card = dataclasses.replace(ResMLP.card, name="still")

    def trains(self, options):
        return False

PLUGIN = Still()
"""


def test_a_third_party_architecture_is_not_believed_that_it_trains_nothing(tmp_path):
    """Otherwise copied weights of such an architecture would be no finding."""
    with installed_member(tmp_path / "site", "architectures", "still", STILL):
        assert not architectures.CATALOG.get("still").trains({})
        for changes in ({"method": "fa"}, {"penalty": 0.1}, {"recipe": recipe(learning_rate=0.5)}):
            assert not may_share_weights(spec(architecture="still"), spec(architecture="still", **changes))


def test_damaged_files_of_runs_that_are_not_audited_end_no_audit(store, audit):
    judged_id, *others = [*store.run_ids(method="dfa", control="none"), *store.run_ids(method="fa", control="none")]
    weights = store.json(judged_id, schema.PROVENANCE)["final_weights"]
    for run_id, text in zip(others, ("", "[]", '{"final_weights": []}', "[" * 100_000), strict=False):
        store.set_tag(run_id, schema.TAG_WEIGHTS, weights)
        (store.artifacts(run_id) / schema.PROVENANCE).write_text(text, encoding="utf-8")
    _, report = audit("--run", judged_id, "--trust-logged")
    assert [run.record.run_id for run in report.runs] == [judged_id]
