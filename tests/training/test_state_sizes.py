"""Which training states a run keeps by default, and what they cost."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.studies.study import load_study
from fa_registry.training import state_sizes
from fa_registry.training.kept_states import asked_states
from fa_registry.training.state_sizes import (
    EPOCH_BYTES,
    GENERATORS,
    MOST_SHARE,
    TensorSizes,
    chosen_epochs,
    default_share,
    kept_bytes,
    run_bytes,
)
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_spec, tiny_task

SIZES = TensorSizes(network=1_000_000, feedback=200_000, trained=1_000_000)
GENERATOR = 5_056  # bytes of the state of a Mersenne Twister, as torch stores it


def test_the_sizes_are_those_of_the_equations():
    spec = tiny_spec(epochs=100)
    assert kept_bytes(spec, SIZES) == 2 * 1_200_000 + 2 * 1_000_000 + 4 * GENERATOR
    sgd = dataclasses.replace(spec, recipe=dataclasses.replace(spec.recipe, optimizer="sgd"))
    assert kept_bytes(sgd, SIZES) == 2 * 1_200_000 + 4 * GENERATOR
    assert run_bytes(spec, SIZES, 0) == 2 * 1_200_000 + 101 * EPOCH_BYTES
    assert run_bytes(spec, SIZES, 10) == 2 * 1_200_000 + 11 * 1_000_000 + 101 * EPOCH_BYTES
    assert default_share(spec, SIZES, 0) == pytest.approx(3 * kept_bytes(spec, SIZES) / run_bytes(spec, SIZES, 0))
    assert len(Trainer(tiny_task()).generators) == GENERATORS


@pytest.mark.parametrize("change", [{}, {"method": "kolen_pollack"}, {"control": "frozen", "method": "bp"}])
def test_the_sizes_of_a_specification_are_those_of_its_setup(change):
    setup = tiny_task(**change)
    trainer = Trainer(setup)
    trained = sum(parameter.nbytes for parameter in trainer.parameters)
    state = {name: tensor.nbytes for name, tensor in trainer.state().items()}
    network = sum(size for name, size in state.items() if name.startswith("network."))
    expected = TensorSizes(network, sum(state.values()) - network, trained)
    assert TensorSizes.of(setup.spec, setup.network, setup.feedback) == expected
    assert TensorSizes.of_specs([setup.spec, setup.spec]) == [(setup.spec, expected)]


@pytest.mark.parametrize(
    ("states", "epochs", "is_small", "kept"),
    [
        ("auto", 100, True, (25, 50, 75)),
        ("auto", 100, False, ()),
        ("auto", 3, True, (1, 2)),  # fewer epochs than states
        ("auto", 1, True, ()),
        (0, 100, True, ()),
        (1, 100, False, (50,)),
        ("all", 4, False, (1, 2, 3)),
    ],
)
def test_three_states_are_kept_where_they_are_small(monkeypatch, states, epochs, is_small, kept):
    setup = tiny_task(epochs=epochs)
    spec, sizes = setup.spec, TensorSizes.of(setup.spec, setup.network, setup.feedback)
    count = min(3, epochs - 1)
    # so many bytes of rows that the states are just below, or just above, the limit
    rows = count * kept_bytes(spec, sizes) / MOST_SHARE - run_bytes(spec, sizes, 0) + (epochs + 1) * EPOCH_BYTES
    monkeypatch.setattr(state_sizes, "EPOCH_BYTES", max(rows, 1) / (epochs + 1) * (1.01 if is_small else 0.99))
    assert chosen_epochs(setup, states, 0) == chosen_epochs(tiny_task(epochs=epochs, seed=9), states, 0) == kept


def test_checkpoints_of_every_epoch_make_states_small():
    setup = tiny_task(epochs=400)
    assert not chosen_epochs(setup, "auto", 0) and chosen_epochs(setup, "auto", 1) == (100, 200, 300)


@pytest.mark.parametrize("name", ["digits", "tokens"])
def test_the_built_in_studies_keep_no_states(name):
    """The numbers are in docs/decisions/09-replays.md."""
    specs = load_study(name).specs
    sizes = TensorSizes.of_specs(specs)
    assert {spec.method_label for spec, _ in sizes} <= {spec.method_label for spec in specs}
    assert {spec.control for spec, _ in sizes} == {spec.control for spec in specs}
    assert min(default_share(spec, size, 0) for spec, size in sizes) > 1


@pytest.mark.parametrize("typed", ["auto", "all", 0, "0", "7", 7])
def test_numbers_and_words_are_read(typed):
    assert asked_states(typed) == (typed if typed in ("auto", "all") else int(typed))


@pytest.mark.parametrize("typed", ["", "none", "-1", -1, 1.5, True, None, "1.5", "ALL"])
def test_other_values_are_refused(typed):
    with pytest.raises(ValueError, match="auto, all or a number of states"):
        asked_states(typed)


def test_the_sizes_of_several_controls_of_one_setting_are_those_of_each_alone():
    specs = [tiny_spec(method="bp", control=control) for control in ("frozen", "ladder_1", "none", "shallow")]
    specs += [tiny_spec(method="kolen_pollack")]
    assert TensorSizes.of_specs(specs) == [TensorSizes.of_specs([spec])[0] for spec in specs]
