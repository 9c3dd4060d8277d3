"""Third-party data sets that give other data to the control than to the method, or to the audit than to the training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fa_registry import datasets
from fa_registry.datasets.base import Splits, plain_splits
from fa_registry.evidence.data_check import BATCH, DataWatch, with_compared_data
from fa_registry.protocol.evidence_rules import UNDECIDED_HERE, evidence
from fa_registry.records import DATA_CHECK, Integrity, Measurements, RunRecord, RunSpec
from fa_registry.training.data_digests import DIGESTED, data_digests
from fa_registry.training.run_setup import RunSetup, build_setup
from fa_registry.training.trainer import Trainer
from tests.builders import record
from tests.helpers.plugins import installed_member
from tests.helpers.tiny_tasks import tiny_spec
from tests.security.attacks import Store
from tests.security.conftest import audited, integrity_of, judged

CPU = torch.device("cpu")
NAME = "biased_digits"
# The digits with an augmentation. `splits` of each attack changes what they return.
BIASED = """
import dataclasses, os, sys, torch
from fa_registry.datasets.base import Dataset, Splits, tensors_digest
from fa_registry.datasets.digits_centred import DigitsCentred

CALLS = [0]

def asks_control():
    frame = sys._getframe(1)
    while frame is not None:
        for value in list(frame.f_locals.values()):
            spec = getattr(getattr(value, "setup", value), "spec", value)
            if getattr(spec, "control", "") == "frozen":
                return True
        frame = frame.f_back
    return False

def in_training():
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_advance":
        frame = frame.f_back
    return frame is not None

def noisy(images, generator):
    CALLS[0] += 1
    return images + 0.01 * torch.randn(images.shape, generator=generator, device=images.device)

class Biased(DigitsCentred):
    card = dataclasses.replace(DigitsCentred.card, name="biased_digits")
    same_for_every_seed = SHARED

    def load(self, device, root=None, seed=0):
        splits = dataclasses.replace(super().load(device, root, seed), augment=noisy)
        train_images, train_labels = splits.train_images, splits.train_labels
        BODY
        return splits

PLUGIN = Biased()
"""
HONEST = "pass"
IN_PLACE = "splits = dataclasses.replace(splits, augment=lambda x, g: x.add_(noisy(torch.zeros_like(x), g)))"
SHUFFLES_LABELS = "if asks_control(): splits = dataclasses.replace(splits, train_labels=train_labels.roll(1))"
CHANGES_IMAGES = "if asks_control(): splits = dataclasses.replace(splits, train_images=train_images.roll(1, dims=3))"
AUGMENTS_CONTROL = "splits = dataclasses.replace(splits, augment=lambda x, g: noisy(x, g) * (not asks_control()))"
AUGMENTS_TRAINING = (
    "splits = dataclasses.replace(splits, augment=lambda x, g: noisy(x, g) * (2 if in_training() else 1))"
)
LATE = "splits = dataclasses.replace(splits, augment=lambda x, g: noisy(x, g) * (2 if CALLS[0] > 4 else 1))"
OVERWRITES = """
        def augment(images, generator):
            train_labels[100:] = 0
            return noisy(images, generator)
        splits = dataclasses.replace(splits, augment=augment)
"""
NONDETERMINISTIC = "splits = dataclasses.replace(splits, train_labels=train_labels[torch.randperm(len(train_labels))])"
BY_ENVIRONMENT = (
    'splits = dataclasses.replace(splits, train_labels=train_labels.roll(int(os.environ.get("ROLL", "0"))))'
)
RAISES = """
        def augment(images, generator):
            raise ValueError("no such batch")
        splits = dataclasses.replace(splits, augment=augment)
"""


@contextmanager
def installed(folder: Path, body: str, shared: bool = False) -> Iterator[None]:
    """The data set with this body of `load`, as pip would install it."""
    source = BIASED.replace("BODY", body.strip()).replace("SHARED", str(shared))
    with installed_member(folder, "datasets", NAME, source):
        try:
            yield
        finally:
            vars(datasets.CATALOG).get("_members", {}).pop(NAME, None)


def audited_record(run_id: str, **fields: object) -> RunRecord:
    """A record as the audit makes it of a run with these fields: its data are checked after a replay of one epoch."""
    setup = build_setup(dataclasses.replace(tiny_spec(), dataset=NAME, epochs=1, **fields), CPU)
    logged = data_digests(setup.spec, load(setup.spec).splits)  # as a training would record them
    watch = DataWatch(setup, "ab")
    Trainer(watch.setup).run_epoch()
    measured = watch.measured(Measurements({}, {}, {"threads": 1, **data_digests(setup.spec, setup.splits)}))
    checks = tuple(watch.checks(logged, measured.conventions, True, None))
    run = record(run_id, measured=measured)
    return dataclasses.replace(run, spec=setup.spec, integrity=Integrity("verified", checks=checks))


def load(spec: RunSpec) -> RunSetup:
    return build_setup(spec, CPU)


def data_checks(one: RunRecord) -> list[str]:
    return [check.outcome for check in one.integrity.checks if check.subject == DATA_CHECK]


def outcomes(**fields: object) -> dict[str, list[str]]:
    """The checks of a method's run and of its control, alone and compared with each other."""
    records = [audited_record("run", method="dfa"), audited_record("control", method="bp", control="frozen")]
    return {one.run_id: data_checks(one) for one in with_compared_data(records)}


@pytest.mark.parametrize("shared", [False, True], ids=["a seed", "every seed"])
@pytest.mark.parametrize("body", [HONEST, IN_PLACE], ids=["new batch", "in place"])
def test_an_honest_data_set_is_not_accused(tmp_path, body, shared):
    with installed(tmp_path, body, shared):
        assert outcomes() == {"run": ["agrees"], "control": ["agrees"]}


@pytest.mark.parametrize("attack", [SHUFFLES_LABELS, CHANGES_IMAGES, AUGMENTS_CONTROL])
def test_a_data_set_that_gives_its_control_other_data_is_a_mismatch_of_both_runs(tmp_path, attack):
    with installed(tmp_path, attack):
        assert outcomes() == {"run": ["agrees", "differs"], "control": ["agrees", "differs"]}


@pytest.mark.parametrize("attack", [AUGMENTS_TRAINING, LATE, OVERWRITES, NONDETERMINISTIC])
def test_a_data_set_that_gives_the_audit_other_data_than_the_training_is_a_mismatch(tmp_path, attack):
    with installed(tmp_path, attack):
        assert data_checks(audited_record("run", method="bp")) == ["differs"]


def test_samples_that_runs_share_hide_no_other_data(tmp_path):
    """Both setups of this process share the samples of the first call, so only a second call gives other labels."""
    with installed(tmp_path, SHUFFLES_LABELS, shared=True):
        found = outcomes()
    assert "differs" in found["control"]


def test_recorded_digests_that_are_missing_or_differ_are_a_mismatch_on_the_same_configuration(tmp_path):
    with installed(tmp_path, HONEST):
        setup = load(dataclasses.replace(tiny_spec(), dataset=NAME))
        watch, logged = DataWatch(setup, ""), data_digests(setup.spec, setup.splits)
        measured = watch.measured(Measurements({}, {}, logged)).conventions
        assert set(logged) == set(DIGESTED) and set(measured) == {*DIGESTED, BATCH}
        for name in DIGESTED:
            for recorded in ({**logged, name: "f" * 64}, {key: logged[key] for key in logged if key != name}):
                assert [one.outcome for one in watch.checks(recorded, measured, True, None)] == ["differs"]
                assert [one.outcome for one in watch.checks(recorded, measured, False, None)] == ["agrees"]


def test_the_nonce_chooses_the_augmented_batch(tmp_path):
    with installed(tmp_path, HONEST):
        setup = load(dataclasses.replace(tiny_spec(), dataset=NAME))
        digests = [
            DataWatch(setup, nonce).measured(Measurements({}, {})).conventions[BATCH] for nonce in ("a", "b", "a")
        ]
    assert digests[0] == digests[2] != digests[1]


def test_an_augmentation_that_raises_stops_the_check(tmp_path):
    with installed(tmp_path, RAISES):
        setup = load(dataclasses.replace(tiny_spec(), dataset=NAME))
        with pytest.raises(ValueError, match="no such batch"):
            DataWatch(setup, "").measured(Measurements({}, {}))


def test_permuted_labels_of_a_third_party_set_are_digested_too(tmp_path):
    with installed(tmp_path, HONEST):
        spec = dataclasses.replace(tiny_spec(), dataset=f"random_targets:{NAME}")
        assert set(data_digests(spec, load(spec).splits)) == set(DIGESTED)
        other = dataclasses.replace(spec, seed=spec.seed + 1)
        digests = [data_digests(one, load(one).splits) for one in (spec, other)]
    assert [name for name in DIGESTED if digests[0][name] != digests[1][name]] == [
        "data_train_labels",
        "data_test_labels",
    ]


def test_the_data_of_a_built_in_set_are_neither_digested_nor_loaded_again(monkeypatch):
    setup = load(tiny_spec())
    monkeypatch.setattr("fa_registry.evidence.data_check.tensors_digest", None)
    monkeypatch.setattr("fa_registry.training.data_digests.tensors_digest", None)
    watch, measured = DataWatch(setup, ""), Measurements({}, {})
    assert (
        watch.setup is setup and watch.measured(measured) is measured and data_digests(setup.spec, setup.splits) == {}
    )
    assert not list(watch.checks({}, {}, True, None))


def with_digests(run_id: str, threads: int = 1, seed: int = 1, **digests: str) -> RunRecord:
    conventions = {"threads": threads, **dict.fromkeys((*DIGESTED, BATCH), "same"), **digests}
    return record(run_id, seed=seed, measured=Measurements({}, {}, conventions))


def test_other_threads_may_give_other_bits():
    """A data set that computes samples by sums has other last bits: no mismatch, and no pass."""
    found = with_compared_data([with_digests("a"), with_digests("b", threads=2, data_train_images="other")])
    assert [data_checks(one) for one in found] == [["not possible"], ["not possible"]]
    assert [one.state for one in evidence(found[0])] == [UNDECIDED_HERE]


def test_runs_of_other_seeds_and_of_equal_data_are_not_compared():
    records = [with_digests("a"), with_digests("b", seed=2, data_batch="other"), with_digests("c")]
    compared = with_compared_data(records)
    assert [one.integrity for one in compared] == [one.integrity for one in records]
    assert all({*one.measurements.conventions} == {"threads", *DIGESTED} for one in compared)
    compared = with_compared_data([*records, with_digests("d", data_train_labels="other")])[0]
    (check,) = [one for one in compared.integrity.checks if one.subject == DATA_CHECK]
    assert (check.subject, check.outcome, check.others) == (DATA_CHECK, "differs", ("d",))


def test_splits_that_compute_their_values_at_each_use_become_plain():
    class Drawn(torch.Tensor):
        pass

    class Other(Splits):
        @property
        def train_labels(self):
            return torch.randint(10, (4,))

        @train_labels.setter
        def train_labels(self, value):
            pass

    labels = torch.arange(4)
    given = Splits(
        torch.rand(4, 1, 2, 2), labels, torch.rand(4, 1, 2, 2).as_subclass(Drawn), labels, lambda x, g: x, ""
    )
    plain = plain_splits(given)
    assert type(plain.test_images) is torch.Tensor and torch.equal(
        plain.test_images, given.test_images.as_subclass(torch.Tensor)
    )
    assert plain_splits(plain) is plain
    changing = object.__new__(Other)
    vars(changing).update({name: value for name, value in vars(plain).items() if name != "train_labels"})
    fixed = plain_splits(changing)
    assert type(fixed) is Splits and fixed.train_labels is fixed.train_labels


SIZES = {"architecture_options": {"d_hidden": 16, "num_blocks": 2, "w2_std": 0.5}}
GRID = {"methods": ["bp"], "seeds": [1], "architectures": ["resmlp"], "datasets": [NAME], **SIZES}


@pytest.mark.long
def test_an_audit_judges_no_run_of_a_data_set_that_shuffles_the_labels_of_the_control(tmp_path, study):
    with installed(tmp_path / "site", SHUFFLES_LABELS):
        report = study(epochs=4, **GRID)
    assert not report.runs
    states = {one.run_id: one.integrity for one in report.excluded}
    assert len(states) == 2
    for run_id in states:
        integrity = integrity_of(report, run_id)
        assert integrity.state == "mismatch"
        assert {one.subject for one in integrity.checks if one.outcome == "differs"} == {DATA_CHECK}


@pytest.mark.long
def test_an_audit_of_an_honest_data_set_checks_it_and_finds_a_change_by_environment(tmp_path, study, monkeypatch):
    with installed(tmp_path / "site", BY_ENVIRONMENT):
        report = study(epochs=4, **GRID)
        store = Store(tmp_path / "own")
        assert {data_checks(run.record)[0] for run in report.runs} == {"agrees"} and len(judged(report)) == 2
        assert all(run.record.integrity.state == "verified" for run in report.runs)
        monkeypatch.setenv("ROLL", "1")
        code, report = audited(store.folder, "--study", "own", "--device", "cpu")
    assert code == 3 and not report.runs and len(report.excluded) == 2
