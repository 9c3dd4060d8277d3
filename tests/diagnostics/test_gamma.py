"""Γ: values, unclamped; and every reason why there is none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry.diagnostics.aggregates import NAMES as MEANS
from fa_registry.diagnostics.aggregates import PLUGIN as AGGREGATES
from fa_registry.diagnostics.centred_gamma import PLUGIN as GAMMA_CENTRED
from fa_registry.diagnostics.gamma import PLUGIN as GAMMA
from fa_registry.diagnostics.gamma_block_input import PLUGIN as GAMMA_BLOCK_INPUT
from fa_registry.diagnostics.gamma_null import CHEAP_DRAWS, COSTLY_DRAWS, DEEP_NAMES, EXACT
from fa_registry.diagnostics.gamma_null import NAMES as NULL_QUANTITIES
from fa_registry.diagnostics.gamma_null import PLUGIN as GAMMA_NULL
from fa_registry.diagnostics.h_norm import PLUGIN as H_NORM
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.training.measuring import measure, with_conventions
from fa_registry.training.probe_context import CHEAP_WORK, _work_of_draw, bench_conventions, null_draws, stream
from fa_registry.training.run_setup import network_shape
from tests.helpers.nets import of
from tests.helpers.probes import bench_for, one_site
from tests.helpers.tiny_tasks import observation, supported, tiny_task

GRADIENTS = [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]]
CREDITS = [[[0, 1], [0, 2], [4, 3]], [[0, 1], [0, 1], [0, -1]]]  # cosines 0, 1, .96 and 1, 0, −1


def values(measured, name: str) -> list[float]:
    return [reading.value for reading in measured.sites[name]]


def test_mean_quartiles_and_batch_cosine():
    measured = GAMMA.measure(observation(gradients=GRADIENTS, credits=CREDITS))
    assert values(measured, "gamma") == pytest.approx([1.96 / 3, 0.0])
    assert values(measured, "gamma_median") == pytest.approx([0.96, 0.0])
    assert values(measured, "gamma_q25") == pytest.approx([0.48, -0.5])
    assert values(measured, "gamma_q75") == pytest.approx([0.98, 0.5])
    assert values(measured, "gamma_samples") == [3.0, 3.0]
    assert values(measured, "gamma_batch") == pytest.approx([28 / 30, (1 - 6) / (41 * 3) ** 0.5])


@pytest.mark.parametrize("size", [1e-12, 1e-30])
def test_a_tiny_gradient_is_still_a_direction(size):
    seen = observation(gradients=(np.array(GRADIENTS) * size).tolist(), credits=CREDITS)
    assert values(GAMMA.measure(seen), "gamma") == pytest.approx([1.96 / 3, 0.0], abs=1e-12)
    assert values(GAMMA.measure(seen), "gamma_batch")[0] == pytest.approx(28 / 30)


def test_samples_without_a_direction_are_left_out_and_counted():
    credits = [[[0, 0], [0, 2], [4, 3]], CREDITS[1]]
    measured = GAMMA.measure(observation(gradients=GRADIENTS, credits=credits))
    assert values(measured, "gamma")[0] == pytest.approx(0.98)
    assert values(measured, "gamma_samples") == [2.0, 3.0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"gradients": [[[0, 0]] * 3, GRADIENTS[1]], "credits": CREDITS},
            "the reference gradient is exactly zero for every sample",
        ),
        (
            {"gradients": GRADIENTS, "credits": [[[0, 0]] * 3, CREDITS[1]]},
            "credit or gradient is zero or not finite for every sample",
        ),
        (
            {"gradients": [[[float("nan"), 0]] * 3, GRADIENTS[1]], "credits": CREDITS},
            "not finite: the reference gradient of every sample",
        ),
        (
            {"gradients": [[[float("inf"), 0]] * 3, GRADIENTS[1]], "credits": CREDITS},
            "not finite: the reference gradient of every sample",
        ),
        (
            {"gradients": GRADIENTS, "credits": CREDITS, "gradients_double": [[[0, 1], [2, 0], [4, -3]], GRADIENTS[1]]},
            "the reference gradient is numerical noise: fidelity 0.0000 < 0.99",
        ),
        ({"gradients": GRADIENTS, "no_credits": "the feedback file is gone"}, "the feedback file is gone"),
    ],
    ids=["zero gradient", "zero credit", "nan gradient", "inf gradient", "noise", "no feedback"],
)
def test_there_is_no_gamma_and_the_reason_is_reported(changes, reason):
    measured = GAMMA.measure(observation(**changes))
    for name in GAMMA.card.names:
        assert measured.sites[name][0].value is None, name
        assert measured.sites[name][0].reason == reason
    if "credits" in changes:
        assert measured.sites["gamma"][1].value is not None


def test_a_missing_feedback_file_makes_every_gamma_na_never_a_number():
    measured = measure(tiny_task(method="fa"), no_feedback="the feedback file is gone")
    names = [name for name in (*measured.sites, *measured.scalars) if name.startswith(("gamma", "norm_ratio"))]
    assert len(names) > 10
    for name in names:
        found = measured.sites.get(name, (measured.scalars.get(name),))
        assert all("feedback file" in reading.reason for reading in found), name
    assert measured.sites["g_norm"][0].value > 0


def test_bp_is_one_everywhere_and_fa_at_its_last_site():
    assert values(measure(tiny_task(method="bp")), "gamma") == pytest.approx([1.0] * 3)
    gamma = values(measure(tiny_task(method="fa")), "gamma")
    assert gamma[-1] == pytest.approx(1.0)
    assert max(map(abs, gamma[:-1])) < 0.9


def test_gamma_is_read_at_the_site_where_the_credit_acts():
    """FA's credit at site L−1 against g_L would be another number: the published reading, one site too early."""
    task = tiny_task(method="fa")
    torch.nn.init.eye_(task.feedback.B_02)  # c_1 = c_2 = g_2
    gamma = values(measure(task), "gamma")
    assert gamma[2] == pytest.approx(1.0)
    assert gamma[1] < 0.99


SAME = [[1.0, 0.0]] * 3


def directions(*cosines: float) -> list[list[list[float]]]:
    """Per site, three vectors at this cosine from (1, 0)."""
    return [[[cosine, (1 - cosine**2) ** 0.5]] * 3 for cosine in cosines]


def seen(gradients, credits, **changes):
    return observation(hidden=gradients, gradients=gradients, credits=credits, **changes)


def test_row_l_is_the_credit_of_l_against_the_gradient_of_l_minus_one():
    measured = GAMMA_BLOCK_INPUT.measure(seen(directions(1.0, 0.0, 0.6), directions(0.3, 0.8, 0.0)))
    first, second, third = measured.sites["gamma_block_input"]
    assert "site 0" in first.reason
    assert second.value == pytest.approx(0.8)  # (.8, .6) · (1, 0)
    assert third.value == pytest.approx(1.0)  # (0, 1) · (0, 1)
    assert measured.scalars["gamma_block_input_mean"].value == pytest.approx(0.9)


def test_the_deep_cosine_leaves_out_the_first_block_and_reads_each_gradient_at_the_blocks_input():
    """Cosines of block l with the gradient at its input: .8, .6, −.2 for l = 1, 2, 3; the published mean is over 2 and 3."""
    gradients = [SAME, SAME, SAME, directions(0.5)[0]]
    measured = GAMMA_BLOCK_INPUT.measure(seen(gradients, directions(0.9, 0.8, 0.6, -0.2)))
    assert measured.scalars["gamma_block_input_mean"].value == pytest.approx((0.8 + 0.6 - 0.2) / 3)
    assert measured.scalars["gamma_deep_input"].value == pytest.approx((0.6 - 0.2) / 2)
    shallow = GAMMA_BLOCK_INPUT.measure(seen([SAME] * 2, [SAME] * 2))
    assert "no block" in shallow.scalars["gamma_deep_input"].reason


def published_deep_cosine(network, x, y, matrices) -> float:
    """What the published penalty sweep prints for the feedback B_1..B_L of a residual network, from its equations.

    The states are h_l = h_{l−1} + f_l(h_{l−1}); g_l is the gradient of the *mean* cross entropy; a_l = B_l (softmax − onehot).
    Block l = 1..L is compared with g_{l−1}, by the cosine, mean over samples; block 1 does not enter the mean.
    """
    states = [network.embed(x).detach().requires_grad_()]
    for block in network.blocks:
        states.append(states[-1] + block(states[-1]))
    logits = network.out_head(network.out_ln(states[-1]))
    gradients = torch.autograd.grad(nn.functional.cross_entropy(logits, y), states)
    error = (logits.softmax(dim=1) - nn.functional.one_hot(y, logits.shape[1])).detach()
    cosines = [
        nn.functional.cosine_similarity(error @ matrix.T, g, dim=1, eps=1e-30).mean().item()
        for matrix, g in zip(matrices, gradients[:-1], strict=True)
    ]
    return float(np.mean(cosines[1:]))


def test_the_deep_cosine_and_its_null_are_those_of_the_published_sweep():
    task = tiny_task(method="dfa", architecture_options={"d_hidden": 16, "num_blocks": 4, "w2_std": 0.3})
    task.feedback.B_03.copy_(torch.randn(16, 10, generator=torch.Generator().manual_seed(5)))
    measured = measure(task, moments=("epoch", "final")).scalars
    images, labels = task.eval_batch
    shape = network_shape(task.network, images[:1], 10)

    def deep(feedback) -> float:
        matrices = [feedback.matrix(block).float() for block in range(1, 5)]
        return published_deep_cosine(task.network, images, labels, matrices)

    assert measured["gamma_deep_input"].value == pytest.approx(deep(task.feedback), abs=1e-5)
    names = (stream(task, f"gamma_null/{index}") for index in range(CHEAP_DRAWS))
    null = [deep(task.method.feedback(shape, task.spec.method_options, name)) for name in names]
    assert measured["gamma_deep_input_null_mean"].value == pytest.approx(np.mean(null), abs=1e-5)
    assert measured["gamma_deep_input_null_std"].value == pytest.approx(np.std(null, ddof=1), abs=1e-5)


def test_without_a_deep_cosine_its_null_has_the_same_reason():
    measured = GAMMA_NULL.measure(look_at_one_cosine(0.5))
    assert all("no block" in measured.scalars[name].reason for name in DEEP_NAMES)
    assert [reading.value is None for reading in readings(measured)] == [False] * 3


def test_fa_looks_aligned_one_site_too_early():
    """What makes the published FA read .997 at its last block: c_L = g_L against g_{L−1} of a nearly linear stream."""
    measured = measure(tiny_task(method="fa", architecture_options={"d_hidden": 16, "num_blocks": 2, "w2_std": 0.01}))
    assert measured.sites["gamma_block_input"][2].value > 0.99
    assert abs(measured.sites["gamma"][1].value) < 0.5
    assert measured.sites["gamma"][2].value == pytest.approx(1.0)
    for site, reading in enumerate(measured.sites["gamma_block_input"][1:], start=1):
        assert reading != measured.sites["gamma"][site]


def test_a_block_that_changes_the_width_has_none():
    wide, narrow = torch.ones(3, 4, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64)
    measured = GAMMA_BLOCK_INPUT.measure(seen([wide, narrow, narrow], [wide, narrow, narrow]))
    reason = (
        "the block changes the width of the state, so the cosine of the credit and the gradient before the block "
        "is not defined (2 and 4 features)"
    )
    assert measured.sites["gamma_block_input"][1].reason == reason
    assert measured.sites["gamma_block_input"][2].value == pytest.approx(1.0)
    assert measured.scalars["gamma_block_input_mean"].reason == reason


def test_the_gradient_that_is_refused_is_the_one_it_is_read_against():
    zero = [[[0.0, 0.0]] * 3, SAME, SAME]
    measured = GAMMA_BLOCK_INPUT.measure(seen(zero, [SAME] * 3))
    row = measured.sites["gamma_block_input"]
    assert "exactly zero" in row[1].reason
    assert row[2].value == pytest.approx(1.0)
    noise = GAMMA_BLOCK_INPUT.measure(seen([SAME] * 3, [SAME] * 3, gradients_double=[directions(0.0)[0], SAME, SAME]))
    assert "fidelity 0.0000 < 0.99" in noise.sites["gamma_block_input"][1].reason
    assert noise.sites["gamma_block_input"][2].value == pytest.approx(1.0)


def test_samples_without_a_direction_are_left_out():
    credits = [SAME, [[0.0, 0.0], [0.6, 0.8], [0.8, 0.6]]]
    measured = GAMMA_BLOCK_INPUT.measure(seen([SAME] * 2, credits))
    assert measured.sites["gamma_block_input"][1].value == pytest.approx(0.7)


def test_reasons_without_credits_meaning_or_blocks():
    assert (
        GAMMA_BLOCK_INPUT.measure(observation(no_credits="no file")).scalars["gamma_block_input_mean"].reason
        == "no file"
    )
    meaningless = seen([SAME] * 2, [SAME] * 2, no_gamma="according to the card of x, Γ has no meaning for this method")
    found = GAMMA_BLOCK_INPUT.measure(meaningless).sites["gamma_block_input"]
    assert all("card of x" in reading.reason for reading in found)
    shallow = seen([SAME], [SAME])
    assert "no block" in GAMMA_BLOCK_INPUT.measure(shallow).scalars["gamma_block_input_mean"].reason
    assert "no block" in H_NORM.measure(shallow).scalars["growth_max"].reason


COSINES = np.linspace(-0.9, 0.95, COSTLY_DRAWS)


def turned(cosine: float, shape: tuple[int, ...] = (2,)) -> torch.Tensor:
    """Three credits at this cosine from the gradient (1, 0)."""
    return torch.tensor([[cosine, (1 - cosine**2) ** 0.5]] * 3, dtype=torch.float64)


def look_at_one_cosine(observed: float, fresh=lambda index: [turned(COSINES[index])], **changes):
    gradients = [[1.0, 0.0]] * 3
    return one_site([[1.0, 2.0]] * 3, gradients, turned(observed), fresh_credits=fresh, **changes)


def readings(measured, site: int = 0):
    return [measured.sites[name][site] for name in NULL_QUANTITIES]


@pytest.mark.parametrize(("observed", "at_least"), [(0.99, 0), (0.94, 1), (0.0, 10), (-0.95, 20)])
def test_mean_std_and_rank(observed, at_least):
    mean, std, p = (reading.value for reading in readings(GAMMA_NULL.measure(look_at_one_cosine(observed))))
    assert mean == pytest.approx(COSINES.mean(), abs=1e-12)
    assert std == pytest.approx(COSINES.std(ddof=1), rel=1e-12)
    assert p == pytest.approx((1 + at_least) / (COSTLY_DRAWS + 1))
    assert (observed <= COSINES).sum() == at_least


def test_samples_without_a_direction_are_left_out_of_a_draws_mean():
    credits = turned(0.6)
    credits[1] = 0
    assert readings(GAMMA_NULL.measure(look_at_one_cosine(0.5, lambda index: [credits])))[0].value == pytest.approx(0.6)


def test_draws_are_the_methods_own_from_the_runs_seed_and_options():
    task = tiny_task(method="dfa")
    measured = measure(task, moments=("epoch", "final"))
    images, labels = task.eval_batch
    shape = network_shape(task.network, images[:1], 10)
    logits, hidden = task.network(images, return_hidden=True)
    gradients = torch.autograd.grad(nn.functional.cross_entropy(logits, labels, reduction="sum"), hidden)
    error = (logits.softmax(dim=1) - nn.functional.one_hot(labels, 10)).detach().double()
    for site, block in ((0, 1), (1, 1), (2, 2)):
        gammas = []
        for index in range(CHEAP_DRAWS):
            fresh = task.method.feedback(shape, task.spec.method_options, stream(task, f"gamma_null/{index}"))
            c, g = (error @ fresh.matrix(block).T.double()).numpy(), gradients[site].double().numpy()
            gammas.append(((c * g).sum(1) / np.sqrt((c**2).sum(1) * (g**2).sum(1))).mean())
        mean, std, p = (reading.value for reading in readings(measured, site))
        assert (mean, std) == pytest.approx((np.mean(gammas), np.std(gammas, ddof=1)), abs=1e-6)
        observed = measured.sites["gamma"][site].value
        assert p == (1 + sum(gamma >= observed for gamma in gammas)) / (CHEAP_DRAWS + 1)


@pytest.mark.parametrize(
    ("method", "draws"),
    [("dfa", 99), ("fa", 99), ("drtp", 99), ("weight_fa", 99), ("frsf", 99), ("brsf", 99), ("pepita", 99), ("ep", 20)],
)
def test_many_draws_where_a_draw_is_cheap_and_none_where_there_is_no_feedback(method, draws):
    task = tiny_task(**supported(method))
    assert null_draws(task) == bench_for(task).null_draws == bench_conventions(task)["gamma_null_draws"] == draws


def test_a_draw_that_takes_too_many_operations_is_made_as_often_as_published():
    """Counted: carrying 128 samples back through weight_fa's matrices, forward and backward, 2 operations a product."""
    task = tiny_task(method="weight_fa", architecture="mlp", architecture_options={"d_hidden": 1024, "num_blocks": 2})
    products = 64 * 1024 + 1024 * 1024 + 1024 * 10
    assert _work_of_draw(task) == pytest.approx(2 * 2 * 128 * products, rel=0.1) and _work_of_draw(task) > CHEAP_WORK
    assert null_draws(task) == 20


def test_draws_are_taken_in_parts_and_each_counts_once():
    """For every divisor of their number: the last part is shorter."""
    asked = []

    def fresh(index):
        asked.append(index)
        return [turned(index / 200)]

    mean, _, p = (
        reading.value for reading in readings(GAMMA_NULL.measure(look_at_one_cosine(0.3, fresh, null_draws=47)))
    )
    assert asked == list(range(47)) and mean == pytest.approx(23 / 200) and p == 1 / 48


@pytest.mark.parametrize("method", ["dfa", "fa"])
def test_under_fresh_feedback_gamma_is_nothing(method):
    measured = measure(tiny_task(method=method, architecture_options={"d_hidden": 64}), moments=("final",))
    for site in range(4):
        mean, std, p = (reading.value for reading in readings(measured, site))
        assert abs(mean) < 4 * std / CHEAP_DRAWS**0.5, f"site {site}"
        assert 0.005 < std < 0.2 and 1 / 100 <= p <= 1


def test_feedback_that_fits_stands_out_of_its_null():
    """dfa with the transposed Jacobian of the head: exact at the last site, and no fresh draw comes near."""
    task = tiny_task(method="dfa", architecture_options={"d_hidden": 16, "num_blocks": 2, "terminal_ln": False})
    task.feedback.B_02.copy_(task.network.out_head.weight.detach().T)
    measured = measure(task, moments=("epoch", "final"))
    assert measured.sites["gamma"][2].value == pytest.approx(1.0)
    assert measured.sites["gamma_null_p"][2].value == pytest.approx(1 / 100)


def test_sites_that_are_exact_have_no_null():
    measured = measure(tiny_task(method="fa"), moments=("final",))
    assert {reading.reason for reading in readings(measured, 2)} == {EXACT}
    assert all(reading.value is not None for reading in readings(measured, 1))


class Learned(DirectFeedbackAlignment):
    """Its card says that its feedback learns, as those of dni or the bridges do."""

    card = dataclasses.replace(DirectFeedbackAlignment.card, learned=True)


def test_only_fixed_random_feedback_has_a_null():
    bp = measure(tiny_task(method="bp"), moments=("final",))
    assert all("'bp'" in reading.reason for reading in readings(bp))
    task = tiny_task(method="dfa")
    shape = network_shape(task.network, task.eval_batch[0][:1], 10)
    learned = dataclasses.replace(task, method=Learned(), feedback=Learned().feedback(shape, {}, torch.Generator()))
    found = {reading.reason for reading in readings(measure(learned, moments=("final",)))}
    assert all("trains its feedback" in reason for reason in found)


def test_where_gamma_is_refused_so_is_its_null():
    zero = one_site([[1.0, 2.0]] * 3, [[0.0, 0.0]] * 3, turned(0.5), fresh_credits=lambda index: [turned(0.1)])
    assert all("exactly zero" in reading.reason for reading in readings(GAMMA_NULL.measure(zero)))


@pytest.mark.parametrize("number", [float("nan"), 0.0])
def test_a_draw_without_a_gamma_leaves_no_null(number):
    broken = torch.full((3, 2), number, dtype=torch.float64)
    measured = GAMMA_NULL.measure(look_at_one_cosine(0.5, lambda index: [broken if index == 3 else turned(0.1)]))
    assert all(reading.not_finite for reading in readings(measured))


UNIT = [[1, 0], [1, 0], [1, 0]]


def look_at_cosines(*rows: list[list[float]], **changes):
    """An observation whose gradients are all (1, 0), so that a unit credit's cosine is its first entry."""
    credits = [[[cosine, (1 - cosine**2) ** 0.5] for cosine in row] for row in rows]
    return observation(hidden=[UNIT] * len(rows), gradients=[UNIT] * len(rows), credits=credits, **changes)


ROWS = ([0.9, 0.9, 0.0], [0.1, 0.2, 0.6], [0.0, 0.3, 0.3], [-1.0, 0.5, 0.8])


def test_the_four_ways_with_and_without_site_zero():
    scalars = AGGREGATES.measure(look_at_cosines(*ROWS)).scalars
    expected = {  # means per site .6 .3 .2 .1; medians .9 .2 .3 .5
        "gamma_deep_mean_mean": 0.2,
        "gamma_deep_mean_median": 1 / 3,
        "gamma_deep_median_mean": 0.2,
        "gamma_deep_median_median": 0.3,
        "gamma_all_mean_mean": 0.3,
        "gamma_all_mean_median": 0.475,
        "gamma_all_median_mean": 0.25,
        "gamma_all_median_median": 0.4,
    }
    assert set(expected) == set(MEANS)
    assert {name: scalars[name].value for name in MEANS} == pytest.approx(expected)
    assert scalars["gamma_deep_mean"] == scalars["gamma_deep_mean_mean"]
    assert scalars["gamma_spread"].value == pytest.approx(0.475 - 0.2)


def test_every_sample_has_its_mean_over_the_counted_sites():
    exact = {"exact": (False, False, False, True)}
    measured = AGGREGATES.measure(look_at_cosines(*ROWS, **exact))  # sites 1 and 2 count
    assert measured.cosines["gamma_deep_mean"] == pytest.approx([0.05, 0.25, 0.45])
    assert measured.scalars["gamma_deep_mean"].value == pytest.approx(0.25)
    without_one = look_at_cosines(*ROWS, **exact)
    without_one.credits[2][0].zero_()  # its cosine is nan, so the mean over sites of this sample is unknown
    measured = AGGREGATES.measure(without_one)
    assert measured.scalars["gamma_deep_mean"].value == pytest.approx(0.3) and not measured.cosines


def test_the_mean_of_the_recorded_cosines_is_gamma():
    measured = measure(tiny_task(method="dfa"))
    scores = measured.sample_scores["gamma_deep_mean"]
    assert (scores.kind, scores.samples) == ("cosine", int(measured.sites["gamma_samples"][1].value))
    assert scores.scores().mean() == pytest.approx(measured.scalars["gamma_deep_mean"].value, abs=1e-7)
    assert measure(tiny_task(method="dfa"), objection="wrong").sample_scores == {}  # a withdrawn metric has no scores


def test_the_score_of_a_sequence_is_the_mean_over_its_positions():
    setup = tiny_task(**of("causal_transformer", method="dfa"))
    tokens = setup.eval_batch[1]
    measured = measure(setup)
    scores = measured.sample_scores["gamma_deep_mean"]
    assert scores.samples == len(tokens) < tokens.numel() == measured.sites["gamma_samples"][1].value
    assert scores.scores().mean() == pytest.approx(measured.scalars["gamma_deep_mean"].value, abs=1e-7)
    recorded = with_conventions(measured, setup)
    assert recorded.conventions["eval_samples"] == scores.samples


def test_exact_sites_are_left_out():
    rows = (*ROWS[:3], [1.0, 1.0, 1.0])
    scalars = AGGREGATES.measure(look_at_cosines(*rows, exact=(False, False, False, True))).scalars
    assert scalars["gamma_deep_mean"].value == pytest.approx(0.25)
    assert scalars["gamma_all_mean_mean"].value == pytest.approx(1.1 / 3)


def test_exact_everywhere_is_na():
    scalars = AGGREGATES.measure(look_at_cosines(*ROWS, exact=(True,) * 4)).scalars
    assert all("exact by construction" in reading.reason for reading in scalars.values())


def test_only_site_zero_left_means_no_deep_aggregate():
    scalars = AGGREGATES.measure(look_at_cosines(*ROWS[:2], exact=(False, True))).scalars
    assert scalars["gamma_deep_mean"].value is None
    assert scalars["gamma_all_mean_mean"].value == pytest.approx(0.6)


def test_one_site_without_gamma_is_not_averaged_away():
    broken = look_at_cosines(*ROWS)
    broken.credits[2].zero_()
    scalars = AGGREGATES.measure(broken).scalars
    assert "site 2" in scalars["gamma_deep_mean"].reason
    assert "no aggregate" in scalars["gamma_spread"].reason


def test_without_credits_the_reason_is_passed_on():
    scalars = AGGREGATES.measure(observation(no_credits="no file")).scalars
    assert {reading.reason for reading in scalars.values()} == {"no file"}


def test_fa_is_aggregated_without_its_exact_last_site():
    measured = measure(tiny_task(method="fa"))
    assert measured.scalars["gamma_deep_mean"].value == pytest.approx(measured.sites["gamma"][1].value)


def test_the_centred_cosine_is_that_of_the_deviations_from_the_batch_means():
    measured = GAMMA_CENTRED.measure(observation(gradients=GRADIENTS, credits=CREDITS))
    for site, found in enumerate(values(measured, "gamma_centred")):
        credit, gradient = (np.array(rows[site], dtype=float) for rows in (CREDITS, GRADIENTS))
        left, right = (rows - rows.sum(axis=0) / 3 for rows in (credit, gradient))
        expected = (left * right).sum() / ((left**2).sum() * (right**2).sum()) ** 0.5
        assert found == pytest.approx(expected, abs=1e-12)
    assert measured.scalars["gamma_centred_mid"] == measured.sites["gamma_centred"][0]


def shared_direction(aligned_rest: bool):
    """Credits and gradients of 200 samples whose large common direction is the same; the rest agrees or is independent."""
    draw = np.random.default_rng(3)
    rest, other = draw.normal(size=(2, 200, 30))
    common = np.zeros(30)
    common[0] = 20.0
    gradients, credits = common + rest, common + (rest if aligned_rest else other)
    return observation(gradients=[gradients.tolist()], credits=[credits.tolist()])


def test_a_direction_that_all_samples_share_makes_gamma_but_not_the_centred_cosine():
    for aligned, expected in ((True, 1.0), (False, 0.0)):
        seen = shared_direction(aligned)
        assert values(GAMMA.measure(seen), "gamma")[0] > 0.9
        assert values(GAMMA_CENTRED.measure(seen), "gamma_centred")[0] == pytest.approx(expected, abs=0.05)


def test_credits_that_are_equal_for_every_sample_have_no_centred_cosine():
    seen = observation(gradients=GRADIENTS, credits=[[[0.1, 0.7]] * 3, CREDITS[1]])
    first, second = GAMMA_CENTRED.measure(seen).sites["gamma_centred"]
    assert "same for every sample" in first.reason and second.value is not None
