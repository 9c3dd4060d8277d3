"""ρ: against a NumPy reference where the loss is linear; its controls; and every reason why there is none."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
import torch

from fa_registry.diagnostics import Unavailable, rho
from fa_registry.diagnostics._probe import SAMPLES_OF_POSITIONS
from fa_registry.diagnostics.rho import DIRECTIONS, OF_CREDIT, PLUGIN, STREAM, TOLERANCE, pearson, push, unit_directions
from fa_registry.training import run_setup
from fa_registry.training.measuring import measure
from fa_registry.training.probe_context import stream
from fa_registry.training.trainer import Trainer
from tests.helpers.closed_form_tasks import KINDS, gradients, sharp_task, tilted
from tests.helpers.probes import bench_for, first, linear_losses, one_site
from tests.helpers.tiny_tasks import double, tiny_task


def train_for(task, epochs: int) -> None:
    trainer = Trainer(task)
    for _ in range(epochs):
        trainer.run_epoch()


CONTROLS = tuple(name for name in PLUGIN.card.names if name not in OF_CREDIT)

CORRELATIONS = ("rho", "rho_samples", "rho_absolute", "rho_absolute_samples")
STATES = [[3.0, 4.0], [6.0, 8.0], [0.0, 5.0]]
SLOPES = [[1.0, 0.0], [0.5, 2.0], [0.0, 3.0]]


def uneven(kind: str, count: int) -> list[torch.Tensor]:
    """Tilted credits of another size, and sometimes sign, from sample to sample: pooled and per sample then differ."""
    sizes = (1.0 + np.arange(count) % 3) * np.where(np.arange(count) % 5 == 4, -1, 1)
    return [credit * torch.tensor(sizes).reshape(-1, *[1] * (credit.dim() - 1)) for credit in tilted(kind, count)]


def reference(task, credit: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
    """Pooled and mean per-sample correlation of c·v with g·v, which is what ρ is where the loss is linear."""
    shape = (len(gradient), DIRECTIONS, gradient[0].size)
    drawn = torch.randn(shape, generator=stream(task, STREAM)).double().numpy()
    units = drawn / np.sqrt((drawn**2).sum(axis=2, keepdims=True))
    foretold, happened = (np.einsum("nvd,nd->nv", units, rows.reshape(len(rows), -1)) for rows in (credit, gradient))
    each = [np.corrcoef(*pair)[0, 1] for pair in zip(foretold, happened, strict=True)]
    return np.corrcoef(foretold.ravel(), happened.ravel())[0, 1], float(np.mean(each))


def row(measured, name: str) -> list[float]:
    return [reading.value for reading in measured.sites[name]]


def only(measured, name: str):
    return measured.sites[name][0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 37, 128, 1024])
def test_where_the_loss_is_linear_it_is_the_correlation_of_the_two_products(kind, count, monkeypatch):
    monkeypatch.setattr(run_setup, "EVAL_SAMPLES", 1024)
    monkeypatch.setattr(rho, "NEAR", 0.0)  # float64 throughout
    task = sharp_task(kind, count, uneven)
    measured = measure(task, moments=("final",))
    looked_at = count if kind == "vectors" else min(count, SAMPLES_OF_POSITIONS)
    credits = uneven(kind, count)
    for site, gradient in enumerate(gradients(kind, count)):
        pooled, each = reference(task, credits[site].numpy()[:looked_at], gradient[:looked_at])
        assert count == 1 or abs(pooled - each) > 0.01  # otherwise one could replace the other unseen
        assert row(measured, "rho")[site] == pytest.approx(pooled, abs=1e-9), f"site {site}"
        assert row(measured, "rho_samples")[site] == pytest.approx(each, abs=1e-9), f"site {site}"
        assert row(measured, "rho_absolute")[site] == pytest.approx(pooled, abs=1e-7), f"site {site}"
        assert row(measured, "rho_absolute_samples")[site] == pytest.approx(each, abs=1e-7), f"site {site}"
    for name in ("rho_bp", "rho_bp_samples"):
        assert row(measured, name) == pytest.approx([1.0] * 3, abs=1e-9)
    assert row(measured, "rho_defined") == [looked_at] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_over_many_directions_it_is_the_cosine(kind):
    """However directions are drawn: if they favour none, the correlation of c·v with g·v is cos(c, g) = 1/√2 here."""
    measured = measure(sharp_task(kind, 128), moments=("final",))
    for name in CORRELATIONS:
        assert row(measured, name) == pytest.approx([0.5**0.5] * 3, abs=0.03), name


def test_a_credit_against_the_gradient_is_minus_one():
    against = sharp_task("tokens", 20, lambda kind, count: [-torch.tensor(rows) for rows in gradients(kind, count)])
    measured = measure(against, moments=("final",))
    for name in CORRELATIONS:
        assert row(measured, name) == pytest.approx([-1.0] * 3, abs=1e-7), name


def test_on_a_real_network_the_gradient_foretells_the_loss_and_a_random_credit_does_not():
    measured = measure(tiny_task(method="bp"), moments=("final",))
    for name in (*CORRELATIONS, "rho_bp", "rho_bp_samples"):
        assert min(row(measured, name)) > 0.999, name
    std = (1 / 16 + 1 / (DIRECTIONS - 1)) ** 0.5 / 128**0.5  # a cosine in 16 dimensions, 32 directions, 128 samples
    for name in ("rho_random", "rho_random_samples"):
        assert max(map(abs, row(measured, name))) < 4 * std, name


def test_the_random_credit_is_another_one_at_every_site():
    """The gradients of this task are parallel: one draw for all sites would be one control, shown three times."""
    found = row(measure(sharp_task("vectors", 20), moments=("final",)), "rho_random")
    assert min(abs(left - right) for left, right in combinations(found, 2)) > 1e-3


@pytest.mark.parametrize(("size", "relative"), [(1.0, 5e-3), (1000.0, 5.0)])
def test_epsilon_is_a_thousandth_of_the_median_norm_and_the_papers(size, relative):
    """The states' norms are 5, 10, 5: the median, not the mean. The slopes are wrong, so float32 does not do."""
    seen, lengths = [], []

    def losses_from(site, pushed, first=0):
        moved = pushed[:, 1:] - pushed[:, :1]
        if pushed.dtype == torch.float64:
            lengths.append(moved.norm(dim=2))  # fa: ok FA001 dim is named
        return pushed.sum(dim=2)

    states = size * torch.tensor(STATES, dtype=torch.float64)
    PLUGIN.measure(one_site(states, SLOPES, SLOPES, losses_from=losses_from))
    seen = [length.flatten().tolist() for length in lengths]
    assert len(seen) == 2
    assert seen[0] == pytest.approx([relative] * 3 * DIRECTIONS, rel=1e-9)
    assert seen[1] == pytest.approx([1e-3] * 3 * DIRECTIONS, rel=1e-7)


def test_the_change_is_taken_from_each_samples_own_loss():
    """Losses that differ by a million between samples leave the pooled figure alone: it is of changes."""
    even, uneven_losses = (
        PLUGIN.measure(one_site(STATES, SLOPES, SLOPES, losses)) for losses in ([1, 1, 1], [1, 9e5, 3])
    )
    assert only(even, "rho").value == pytest.approx(only(uneven_losses, "rho").value, abs=1e-7) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"credits": [[0.0, 0.0]] * 3}, "the credit is exactly zero for every sample"),
        ({"credits": [[float("nan"), 0.0]] * 3}, "not finite: credit or loss of every sample"),
        ({"credits": [[float("inf"), 0.0]] * 3}, "not finite: credit or loss of every sample"),
        ({"credits": Unavailable("the file is gone")}, "the file is gone"),
        (
            {"states": [[0.0, 0.0]] * 3},
            "the step ε is zero, because it is proportional to the median norm of the states, which is zero",
        ),
        ({"states": [[float("inf"), 0.0]] * 3}, "not finite: the median norm of the states"),
    ],
    ids=["zero credit", "nan credit", "inf credit", "no credit", "zero states", "inf states"],
)
def test_there_is_no_rho_and_the_reason_is_reported(changes, reason):
    given = {"states": STATES, "gradients": SLOPES, "credits": SLOPES, **changes}
    measured = PLUGIN.measure(one_site(**given))
    absolute = reason if "states" not in changes or "inf" in str(changes) else ""
    for name in OF_CREDIT:
        expected = absolute if "absolute" in name else reason
        assert (only(measured, name).reason, only(measured, name).value is None) == (expected, bool(expected)), name
    for name in CONTROLS:
        assert (only(measured, name).value is None) == ("states" in changes), name


def test_a_loss_that_does_not_move_beyond_rounding_has_no_rho():
    """Numbers would come out: the correlation of a credit with the last bits of a float64."""
    draw = torch.Generator().manual_seed(0)
    bits = torch.randint(9, (3, 1 + DIRECTIONS), generator=draw).double() * np.finfo(np.float64).eps
    seen = one_site(STATES, SLOPES, SLOPES, losses_from=lambda site, pushed, first=0: 1 + bits[first:][: len(pushed)])
    assert len((1 + bits).unique()) == 9
    measured = PLUGIN.measure(seen)
    why = "for every sample, the credit is zero or the change of the loss is not larger than the rounding error of float64"
    for name in (*OF_CREDIT, *CONTROLS):
        assert only(measured, name).reason == why, name


def test_samples_whose_loss_does_not_move_are_left_out_of_the_mean():
    measured = PLUGIN.measure(one_site(STATES, [[1.0, 0.0], [1e-15, 0.0], [0.0, 3.0]], SLOPES))
    assert only(measured, "rho_defined").value == 2.0
    assert only(measured, "rho_samples").value == pytest.approx(1.0)
    assert only(measured, "rho").value < 0.999


def test_the_papers_epsilon_is_nothing_to_an_exploded_state():
    measured = PLUGIN.measure(one_site(np.array(STATES) * 1e13, SLOPES, SLOPES))
    assert only(measured, "rho").value == pytest.approx(1.0)
    for name in ("rho_absolute", "rho_absolute_samples"):
        assert "ε = 0.001" in only(measured, name).reason


def test_samples_without_a_rho_are_left_out_of_the_mean_and_counted():
    credits = [[0.0, 0.0], [0.5, 2.0], [0.0, -3.0]]  # none, +1, −1
    measured = PLUGIN.measure(one_site(STATES, SLOPES, credits))
    assert only(measured, "rho_samples").value == pytest.approx(0.0, abs=1e-9)
    assert only(measured, "rho_defined").value == 2.0
    assert only(measured, "rho").value is not None


def test_one_broken_sample_leaves_no_pooled_figure():
    credits = [[float("nan"), 0.0], [0.5, 2.0], [0.0, 3.0]]
    measured = PLUGIN.measure(one_site(STATES, SLOPES, credits))
    assert only(measured, "rho").not_finite and "1 of 3" in only(measured, "rho").reason
    assert (only(measured, "rho_samples").value, only(measured, "rho_defined").value) == (pytest.approx(1.0), 2.0)


def test_controls_are_the_same_bit_by_bit_without_a_credit():
    task = tiny_task(method="fa")
    there, gone = (measure(task, absent, ("final",)) for absent in ("", "the file is gone"))
    assert all(there.sites[name] == gone.sites[name] for name in CONTROLS)


def in_float64(bench):
    """The bench, the number of passes in float64 so far, and all of them."""
    passes = []

    def losses_from(site, pushed, first=0):
        passes.append(pushed.dtype)
        return bench.losses_from(site, pushed, first)

    return dataclasses.replace(bench, losses_from=losses_from), passes


@pytest.mark.parametrize("method", ["bp", "dfa"])
@pytest.mark.parametrize(
    ("architecture", "options", "epochs"),
    [
        ("resmlp", {"d_hidden": 16, "num_blocks": 2, "w2_std": 0.5}, 12),
        ("resmlp", {"d_hidden": 16, "num_blocks": 2, "activation": "relu"}, 6),
        ("vit_mini", {"d_hidden": 16, "num_blocks": 1}, 0),
    ],
)
def test_float32_gives_the_correlations_of_float64_within_the_tolerance(
    architecture, options, epochs, method, monkeypatch
):
    task = tiny_task(method=method, architecture=architecture, architecture_options=options)
    train_for(task, epochs)
    found = measure(task, moments=("final",))
    monkeypatch.setattr(rho, "NEAR", 0.0)
    exact = measure(task, moments=("final",))
    for name in PLUGIN.card.names:
        if name == "rho_defined":
            assert found.sites[name] == exact.sites[name]
        else:
            assert row(found, name) == pytest.approx(row(exact, name), abs=TOLERANCE), name
    assert found.sites["rho"] != exact.sites["rho"]  # float32 was used


def test_changes_of_both_steps_are_those_of_float64():
    """On a trained network in float32: the parabola gives those of the smaller step, whose curvature is a hundredth."""
    task = tiny_task(method="bp")
    train_for(task, 12)
    bench, passes = in_float64(bench_for(task))
    candidates = [gradient.unsqueeze(2) for gradient in bench.gradients]
    norms = [rho.typical_norm(state) for state in bench.states]
    found = push(bench, candidates, [(2e-3 * norm, 2e-4 * norm) for norm in norms])
    assert torch.float64 not in passes
    for site, (slopes, changes) in enumerate(found):
        units = torch.cat(
            [torch.zeros(128, 1, 16), unit_directions(128, bench.states[site].shape[1:], *drawn(bench))], 1
        )
        for place, step in enumerate((2e-3 * norms[site], 2e-4 * norms[site])):
            exact = bench.losses_from(site, bench.states[site].unsqueeze(1) + step * units)
            exact = exact[:, 1:] - exact[:, :1]
            bend = (exact - step * slopes[0]).norm()  # fa: ok FA001 of all entries
            assert (changes[place] - exact).norm() < (0.2 if place else 0.8) * bend  # fa: ok FA001 of all entries


def drawn(bench):
    return bench.generator(STREAM), CPU


@pytest.mark.parametrize("wrong", ["noise", "curved", "not finite"])
def test_where_float32_does_not_agree_with_the_slopes_float64_decides(wrong):
    """float32 with an error of one per cent of the changes, once: all changes are those of float64."""
    states, slopes = (torch.tensor(rows, dtype=torch.float64) for rows in (STATES, SLOPES))
    linear = linear_losses(slopes, states, torch.ones(3).double())
    errors = {"noise": lambda moved: 1e-2 * moved.flip(1), "curved": lambda moved: 10 * moved**2}

    def losses_from(site, pushed, first=0):
        losses = linear(site, pushed.double(), first)
        error = errors.get(wrong, lambda moved: torch.full_like(moved, torch.nan))(losses - 1)
        return losses + (error if pushed.dtype == torch.float32 or wrong == "curved" else 0)

    bench, passes = in_float64(one_site(STATES, SLOPES, SLOPES, losses_from=losses_from).bench)
    ((_, changes),) = push(bench, [slopes.unsqueeze(2)], [(5e-3, 1e-3)])
    assert passes == [torch.float32, torch.float64, torch.float64]
    pushed = states.unsqueeze(1) + 5e-3 * unit_directions(3, torch.Size([2]), bench.generator(STREAM), CPU)
    assert torch.allclose(changes[0], losses_from(0, pushed) - 1, rtol=1e-9, atol=1e-14)


STEPS = (0.01, 0.5)
CPU = torch.device("cpu")


def pushed(count: int):
    """Predictions and changes of the first samples of the digits, the exact gradient and dfa's credit as candidates."""
    bench = bench_for(first(double(tiny_task()), count))  # in float64 throughout, or dfa's credit rounds by batch
    candidates = [torch.stack(pair, dim=2) for pair in zip(bench.gradients, bench.credits, strict=True)]
    return push(bench, candidates, [STEPS] * 3)


@pytest.mark.parametrize("count", [1, 37, 128])
def test_a_samples_figures_do_not_depend_on_who_else_is_pushed(count, monkeypatch):
    monkeypatch.setattr(run_setup, "EVAL_SAMPLES", 200)
    for some, all_of_them in zip(pushed(count), pushed(200), strict=True):
        for found, expected in zip(some, all_of_them, strict=True):
            assert found.shape == (2, count, DIRECTIONS)
            assert torch.allclose(found, expected[:, :count], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("entries", [1, 7 * DIRECTIONS * 16, 2**30])
def test_pushing_in_pieces_is_pushing_at_once(entries, monkeypatch):
    whole = pushed(20)
    monkeypatch.setattr(rho, "ENTRIES", {"cpu": entries})
    for pieces, expected in zip(pushed(20), whole, strict=True):
        assert all(torch.allclose(*pair, rtol=1e-9, atol=1e-13) for pair in zip(pieces, expected, strict=True))


def test_changes_are_of_the_loss_from_that_site_and_that_sample():
    task = first(double(tiny_task()), 5)
    bench = bench_for(task)
    units = unit_directions(5, torch.Size([16]), bench.generator(rho.STREAM), CPU)
    for site, (predicted, changes) in enumerate(pushed(5)):
        for place, step in enumerate(STEPS):
            moved = bench.losses_from(site, bench.states[site].unsqueeze(1) + step * units)
            assert torch.allclose(changes[place], moved - bench.losses.unsqueeze(1), atol=1e-12)
        assert torch.allclose(predicted[0], (units * bench.gradients[site].unsqueeze(1)).sum(dim=2), atol=1e-12)


def test_directions_are_of_length_one_and_favour_none():
    units = unit_directions(500, torch.Size([2, 3]), torch.Generator().manual_seed(0), CPU)
    assert units.shape == (500, DIRECTIONS, 6) and units.dtype == torch.float64
    assert torch.allclose((units**2).sum(dim=2), torch.ones(500, DIRECTIONS, dtype=torch.float64))
    flat = units.reshape(-1, 6)
    assert torch.allclose(flat.T @ flat / len(flat), torch.eye(6).double() / 6, atol=0.01)
    assert flat.mean(dim=0).abs().max() < 0.02


def test_pearson_is_numpys():
    draw = np.random.default_rng(5).normal(size=(2, 4, 30))
    found = pearson(torch.tensor(draw[0]), torch.tensor(draw[1]))
    assert found.tolist() == pytest.approx([np.corrcoef(*pair)[0, 1] for pair in zip(*draw, strict=True)])


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_pearson_does_not_depend_on_size(size):
    rows = torch.tensor([[1.0, 2.0, 4.0], [1.0, 0.0, 3.0]], dtype=torch.float64)
    assert pearson(rows[0] * size, rows[1]).item() == pytest.approx(pearson(*rows).item(), rel=1e-12)


@pytest.mark.parametrize(
    "flat",
    [[0.0, 0.0, 0.0], [0.1, 0.1, 0.1], [1.0, 1.0 + 2e-16, 1.0], [1.0, float("inf"), 2.0], [1.0, float("nan"), 2.0]],
)
def test_pearson_of_what_does_not_vary_or_is_not_finite_is_nan(flat):
    assert pearson(torch.tensor(flat, dtype=torch.float64), torch.tensor([1.0, 2.0, 4.0]).double()).isnan()
