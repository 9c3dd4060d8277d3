"""FAProtocol: the published figures and keys, the verdict without accuracies, and what it refuses."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.errors import InvalidFields, UsageError
from tests.external.models import CLASSES, DEPTH, SEED, Detached, batch, build, exploded, indifferent

KEYS = {  # design.md §7
    "D1_scale_growth": ["max_growth", "per_block_growth", "hidden_norms", "threshold", "fires"],
    "D2_ref_validity": ["g_L", "bp_grad_norms", "floor", "fires"],
    "D3_depth_utility": ["test_acc", "frozen_baseline_acc", "margin", "margin_threshold", "fires"],
}
REPORT = ["verdict", "test_acc", "diagnostics", "remarks", "provisional", "loss", "reference_check"]


def figures(report: dict, name: str) -> dict:
    return report["diagnostics"][name]


@pytest.mark.parametrize("count", [2, 4, 16])
def test_figures_are_the_published_ones(count):
    """torch.median over samples of ‖h_l‖ and of ‖∂ mean CE/∂h_l‖: the loss is the mean over the batch that was given."""
    model, (x, y) = build(), batch(count)
    report = fa_registry.FAProtocol(model, x, y).run(test_acc=0.9)
    states = model.states(x)
    gradients = torch.autograd.grad(nn.functional.cross_entropy(model.read(states[-1]), y), states)

    def medians(rows):
        return [row.detach().double().norm(dim=1).median().item() for row in rows]

    hidden = medians(states)
    growth = [after / before for before, after in zip(hidden, hidden[1:], strict=False)]
    first, second = figures(report, "D1_scale_growth"), figures(report, "D2_ref_validity")
    assert first["hidden_norms"] == pytest.approx(hidden, rel=1e-5)
    assert first["per_block_growth"] == pytest.approx(growth, rel=1e-5)
    assert first["max_growth"] == pytest.approx(max(growth), rel=1e-5)
    assert second["bp_grad_norms"] == pytest.approx(medians(gradients), rel=1e-4)
    assert second["g_L"] == second["bp_grad_norms"][-1]


def test_the_gradient_scales_as_one_over_the_batch():
    model, (x, y) = build(), batch(8)
    once = fa_registry.FAProtocol(model, x, y).run(test_acc=0.9)
    twice = fa_registry.FAProtocol(model, x.repeat(2, 1), y.repeat(2)).run(test_acc=0.9)
    norms = [figures(report, "D2_ref_validity")["bp_grad_norms"] for report in (once, twice)]
    assert norms[1] == pytest.approx([norm / 2 for norm in norms[0]], rel=1e-5)
    assert figures(once, "D1_scale_growth") == figures(twice, "D1_scale_growth")


def test_the_keys_are_those_of_the_published_report():
    report = fa_registry.FAProtocol(build(), *batch()).run(0.5, 0.9)
    assert list(report) == REPORT
    assert {name: list(found) for name, found in report["diagnostics"].items()} == KEYS
    assert report == dict(report) and report["remarks"] == [] and "PASS" in repr(report)
    assert str(report) == fa_registry.FAProtocol.summary(report)


def test_a_good_run_passes_and_says_so():
    report = fa_registry.FAProtocol(build(), *batch()).run(
        frozen_baseline_acc=0.5,  # fa: ok FA010 stated
        test_acc=0.9,
    )
    third = figures(report, "D3_depth_utility")
    assert (report["verdict"], report["test_acc"]) == ("PASS", 0.9)
    assert (third["margin"], third["margin_threshold"], report["provisional"]) == (0.4, 0.02, False)
    assert [figures(report, name)["fires"] for name in KEYS] == [False, False, False]


def test_without_a_frozen_accuracy_depth_utility_is_none_and_nothing_passes():
    report = fa_registry.FAProtocol(build(), *batch()).run(test_acc=0.9)
    third = figures(report, "D3_depth_utility")
    assert (third["fires"], third["margin"], report["verdict"]) == (None, None, "INCOMPLETE")
    assert len(report["remarks"]) == 1
    with pytest.warns(fa_registry.EvidenceWarning):
        report = fa_registry.FAProtocol(build(gain=500.0), *batch()).run()
    first = figures(report, "D1_scale_growth")
    assert (report["verdict"], report["provisional"], first["fires"]) == ("INCOMPLETE(D1)", True, True)
    assert first["max_growth"] == first["per_block_growth"][1] > 50


@pytest.mark.parametrize("threshold", [2.0, 7.0, 0.1, 33.3])
def test_margin_and_threshold_are_fractions_of_one_unit(threshold):
    """What users of the published report write: margin < margin_threshold, exactly on the limit too."""
    report = fa_registry.FAProtocol(build(), *batch(), d3_margin_pp=threshold).run(0.5, 0.5 + threshold / 100)
    third = figures(report, "D3_depth_utility")
    assert third["margin_threshold"] == pytest.approx(threshold / 100)
    assert not third["margin"] < third["margin_threshold"] and third["fires"] is False
    third = figures(fa_registry.FAProtocol(build(), *batch()).run(0.64, 0.27), "D3_depth_utility")
    assert (third["margin"], third["fires"]) == (-0.37, True)


def right(model, x, y):
    return (model(x).argmax(dim=1) == y).double().mean().item()


@pytest.mark.parametrize(
    ("frozen", "verdict", "fires"), [(0.0, "WARN(D3 provisional)", False), (0.9, "FAIL(D3 provisional)", True)]
)
def test_without_a_test_accuracy_that_of_the_batch_stands_in_with_a_warning(frozen, verdict, fires):
    model, (x, y) = build(), batch()
    protocol = fa_registry.FAProtocol(model, x, y)
    with pytest.warns(fa_registry.EvidenceWarning, match="16 samples") as caught:
        report = protocol.run(frozen_baseline_acc=frozen)
    assert [one.filename for one in caught] == [__file__]
    third = figures(report, "D3_depth_utility")
    assert report["test_acc"] == third["test_acc"] == right(model, x, y) > 0.1
    assert (report["verdict"], third["fires"], report["provisional"]) == (verdict, fires, True)
    assert third["margin"] == pytest.approx(right(model, x, y) - frozen)
    assert list(report) == REPORT


def test_the_accuracy_of_the_batch_is_taken_in_eval_mode():
    model, (x, y) = build(), batch()
    model.out_head = nn.Sequential(nn.Dropout(0.9), model.out_head)
    with pytest.warns(fa_registry.EvidenceWarning):
        report = fa_registry.FAProtocol(model.train(), x, y).run()
    assert report["test_acc"] == right(model.eval(), x, y)


@pytest.mark.parametrize(("count", "label"), [(1, None), (16, 1)])
def test_one_sample_or_one_class_is_a_warning(count, label):
    model, (x, y) = build(), batch(count)
    y = y if label is None else torch.full_like(y, label)
    with pytest.warns(fa_registry.EvidenceWarning, match="^FAProtocol: y_eval: ") as caught:
        protocol = fa_registry.FAProtocol(model, x, y)
    assert [one.filename for one in caught] == [__file__]
    report = protocol.run(0.5, 0.9)
    assert report["verdict"] == "PASS"
    norms = figures(report, "D1_scale_growth")["hidden_norms"]
    assert norms == pytest.approx([state.norm(dim=1).median().item() for state in model.states(x)], rel=1e-5)


def test_medians_are_the_lower_ones_where_the_registrys_are_midpoints():
    """Four samples, norms 1, 2, 4, 8: 2 as published, 3 in the registry."""
    from fa_registry.diagnostics import CATALOG, observe

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.out_head = nn.ModuleList([nn.Linear(2, 2)]), nn.Linear(2, 2)

        def forward(self, x):
            return self.out_head(x + self.blocks[0](x))

    x = torch.tensor([[8.0, 0.0], [1.0, 0.0], [4.0, 0.0], [2.0, 0.0]])
    y = torch.tensor([0, 1, 0, 1])
    torch.manual_seed(SEED)
    model = Scaled()
    report = fa_registry.FAProtocol(model, x, y).run(0.5, 0.9)
    assert figures(report, "D1_scale_growth")["hidden_norms"][0] == 2.0
    seen = observe(fa_registry.adapt(model), x, y)
    assert CATALOG.get("h_norm").measure(seen).sites["h_norm"][0].value == 3.0


def test_limits_are_arguments():
    protocol = fa_registry.FAProtocol(build(), *batch(), d1_threshold=0.5, d2_eps=10.0, d2_factor=3.0, d3_margin_pp=50)
    report = protocol.run(0.5, 0.9)
    assert [figures(report, name)["fires"] for name in KEYS] == [True, True, True]
    assert figures(report, "D2_ref_validity")["floor"] == 30
    assert report["verdict"] == "FAIL(D1+D2+D3)"


@pytest.mark.parametrize(
    ("limits", "published_text", "published_code"),
    [
        ({}, "PASS", "PASS"),
        ({"d1_threshold": 0.5}, "WARN(D1)", "FAIL(D1)"),
        ({"d2_eps": 10.0}, "WARN(D2)", "FAIL(D2)"),
        ({"d1_threshold": 0.5, "d2_eps": 10.0}, "FAIL(D1+D2)", "FAIL(D1+D2)"),
        ({"d3_margin_pp": 50}, "FAIL(D3)", "FAIL(D3)"),
    ],
)
def test_strict_judges_as_the_published_code_and_changes_nothing_else(limits, published_text, published_code):
    """The paper and the README: FAIL if (D1 and D2) or D3. The published code: FAIL if any fires."""
    reports = [
        fa_registry.FAProtocol(build(), *batch(), **limits, **strict).run(0.5, 0.9)
        for strict in ({}, {"strict": False}, {"strict": True})
    ]
    assert [report.pop("verdict") for report in reports] == [published_text, published_text, published_code]
    assert reports[0] == reports[1] == reports[2]


@pytest.mark.parametrize(
    ("gain", "limits", "verdict"),
    [
        (1.0, {}, "PASS"),
        (500.0, {}, "FAIL(D1)"),
        (1.0, {"d2_eps": 10.0}, "FAIL(D2)"),
        (500.0, {"d2_eps": 10.0}, "FAIL(D1+D2)"),
    ],
)
@pytest.mark.parametrize("given", [{"test_acc": 0.9}, {}], ids=["test accuracy", "no accuracy"])
def test_strict_prints_what_the_published_code_prints_without_a_frozen_accuracy(gain, limits, verdict, given):
    """The published code leaves D3 undecided (fires is None), and names the rules that fire, or PASS."""
    protocol = fa_registry.FAProtocol(build(gain=gain), *batch(), strict=True, **limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa_registry.EvidenceWarning)
        report = protocol.run(**given)
    depth = report["diagnostics"]["D3_depth_utility"]
    assert report["verdict"] == verdict and (depth["margin"], depth["fires"]) == (None, None)
    assert any("D3" in remark for remark in report["remarks"])
    assert report["provisional"] is not bool(given)


@pytest.mark.parametrize("strict", ["no", 1, None])
def test_strict_is_true_or_false(strict):
    with pytest.raises(InvalidFields) as caught:
        fa_registry.FAProtocol(build(), *batch(), d2_eps="small", strict=strict)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["d2_eps", "strict"]


def test_accuracies_that_are_no_fractions_are_named_together():
    protocol = fa_registry.FAProtocol(build(), *batch())
    with pytest.raises(InvalidFields) as caught:
        protocol.run(frozen_baseline_acc=-0.1, test_acc=61)
    assert [problem.partition(":")[0] for problem in sorted(caught.value.problems)] == [
        "frozen_baseline_acc",
        "test_acc",
    ]
    assert figures(protocol.run(frozen_baseline_acc=0, test_acc=1), "D3_depth_utility")["margin"] == 1
    for accuracy in (math.nan, math.inf, 1.0001):
        with pytest.raises(InvalidFields, match="^FAProtocol: 1 problem\n  - test_acc"):
            protocol.run(frozen_baseline_acc=0.5, test_acc=accuracy)  # fa: ok FA010 a stated value


@pytest.mark.parametrize(("model", "images"), [(torch.float64, torch.float32), (torch.float32, torch.float64)])
def test_weights_and_inputs_of_two_precisions_are_refused(model, images):
    x, y = batch()
    with pytest.raises(InvalidFields, match=rf"x_eval: expected .*\({model}\), found {images}"):
        fa_registry.FAProtocol(build().to(model), x.to(images), y)
    fa_registry.FAProtocol(build().to(model), x.to(model), y).run(test_acc=0.9)


def test_wrong_batches_are_refused_with_every_problem():
    x, y = batch()
    with pytest.raises(InvalidFields) as caught:
        fa_registry.FAProtocol(build(), x[:3].double(), y.float())
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["y_eval", "x_eval", "x_eval"]
    with pytest.raises(InvalidFields, match="found 0 rows"):
        fa_registry.FAProtocol(build(), x[:0], y[:0])


@pytest.mark.parametrize("frozen", [False, True])
def test_token_ids_into_an_embedding(frozen):
    model = build(tokens=True)
    ids = torch.randint(11, (6, 4), generator=torch.Generator().manual_seed(SEED))
    labels = torch.arange(6) % CLASSES
    states = model.states(ids)
    gradients = torch.autograd.grad(nn.functional.cross_entropy(model.read(states[-1]), labels), states)
    model.requires_grad_(not frozen)
    found = figures(fa_registry.FAProtocol(model, ids, labels).run(test_acc=0.9), "D2_ref_validity")["bp_grad_norms"]
    norms = [gradient[:, 0].norm(dim=1) for gradient in gradients]  # fa: ok FA008 as published
    expected = [values.median().item() for values in norms]
    assert found == pytest.approx(expected, rel=1e-4)


def test_everything_that_is_wrong_with_a_call_is_named_at_once():
    x, y = batch()
    with pytest.raises(InvalidFields) as caught:
        fa_registry.FAProtocol(nn.Linear(5, CLASSES), x, y - 1, d1_threshold=math.nan, d2_eps="small")
    named = [problem.partition(":")[0] for problem in caught.value.problems]
    assert named == ["sites", "y_eval", "d1_threshold", "d2_eps"]


def test_an_infinite_state_is_na_with_the_reason_and_never_a_number():
    report = fa_registry.FAProtocol(exploded(), *batch()).run(0.5, 0.9)
    first, second = figures(report, "D1_scale_growth"), figures(report, "D2_ref_validity")
    assert first["hidden_norms"][2:] == [None, None] and first["max_growth"] is None and first["fires"] is True
    assert second["bp_grad_norms"] == [None] * 4 and second["fires"] is None
    assert report["verdict"] == "INCOMPLETE(D1)"
    assert [remark.split()[0] for remark in report["remarks"]] == ["D1", "D2"]
    assert fa_registry.FAProtocol.summary(report).splitlines()[5:] == [f"note: {one}" for one in report["remarks"]]
    assert fa_registry.FAProtocol(exploded(), *batch(), strict=True).run(test_acc=0.9)["verdict"] != "PASS"


def test_gradients_of_exactly_zero_are_at_the_floor():
    report = fa_registry.FAProtocol(indifferent(), *batch()).run(0.5, 0.9)
    second = figures(report, "D2_ref_validity")
    assert (second["g_L"], second["fires"], report["verdict"]) == (0.0, True, "WARN(D2)")
    assert len(report["remarks"]) == 1 and "exactly zero" in report["remarks"][0]


def test_a_stream_that_the_loss_does_not_depend_on_is_refused():
    with pytest.raises(InvalidFields, match="model: "):
        fa_registry.FAProtocol(build(Detached), *batch()).run(test_acc=0.9)


def test_an_adapted_model_is_measured_as_declared():
    model, (x, y) = build(), batch()
    direct = fa_registry.FAProtocol(model, x, y).run(0.5, 0.9)
    adapted = fa_registry.adapt(model, sites=[f"blocks.{index}" for index in range(DEPTH)], skip="outside")
    assert fa_registry.FAProtocol(adapted, x, y).run(0.5, 0.9) == direct
    with pytest.raises(UsageError, match="declare skip='outside'"):
        fa_registry.FAProtocol(fa_registry.adapt(model, skip="inside"), x, y).run(test_acc=0.9)


def test_the_summary_names_the_block_that_grows_and_the_check_of_the_reference():
    report = fa_registry.FAProtocol(build(gain=500.0), *batch()).run(0.5, 0.9)
    growth = figures(report, "D1_scale_growth")["per_block_growth"]
    first, *_, check = str(report).splitlines()[1:5]
    assert f"in block {1 + growth.index(max(growth))} " in first and check.startswith("reference check: ok")
    assert not report["reference_check"]["fails"] and max(report["reference_check"]["deviations"]) < 1e-3
    assert "FAILS" in fa_registry.FAProtocol.summary({**report, "reference_check": {"deviations": [1], "fails": True}})
    assert "none" in fa_registry.FAProtocol.summary({**report, "reference_check": None})


SITES = [f"blocks.{index}" for index in range(DEPTH)]


@pytest.mark.parametrize("sites", [3, None, "blocks.0", [3]])
@pytest.mark.parametrize(
    "call",
    [
        lambda model, x, y, sites: fa_registry.adapt(model, sites),
        lambda model, x, y, sites: fa_registry.FAProtocol(model, x, y, sites=sites),
        lambda model, x, y, sites: fa_registry.diagnose(model, [(x, y)], sites=sites),
        lambda model, x, y, sites: fa_registry.alignment(model, (x, y), lambda *_: [], sites),
        lambda model, x, y, sites: fa_registry.track(model, sites, eval=(x, y), method="mine"),
        lambda model, x, y, sites: fa_registry.frozen_control(model, sites=sites, x=x).__enter__(),
    ],
)
def test_sites_of_a_wrong_type_are_answered_with_the_argument_to_write(call, sites):
    model, (x, y) = nn.Sequential(*(nn.Linear(5, 5) for _ in range(DEPTH)), nn.Linear(5, CLASSES)), batch()
    with pytest.raises(UsageError, match=r'sites=\["0", "1", "2"\]'):
        call(model, x, y, sites)


def test_sites_of_the_protocol_are_those_of_adapt():
    model, (x, y) = build(), batch()
    assert fa_registry.FAProtocol(model, x, y, sites=SITES).run(0.5, 0.9) == fa_registry.FAProtocol(
        fa_registry.adapt(model, SITES), x, y
    ).run(0.5, 0.9)


def test_a_function_for_states_that_no_site_needs_is_a_note_and_no_warning():
    (x, y), found = batch(), {}
    for returned, state in (("tensor", lambda out: out[0]), ("tuple", lambda out: out[0]), ("none", None)):

        class Block(nn.Linear):
            def forward(self, h, kind=returned):
                return (super().forward(h),) if kind == "tuple" else super().forward(h)

        class Chain(nn.Module):
            def __init__(self, kind=Block):
                super().__init__()
                self.body, self.head = nn.ModuleList(kind(5, 5) for _ in range(2)), nn.Linear(5, CLASSES)

            def forward(self, h):
                for block in self.body:
                    h = block(h)
                    h = h[0] if isinstance(h, tuple) else h
                return self.head(h)

        network = fa_registry.adapt(Chain(), ["body.0", "body.1"], state=state)
        report = fa_registry.FAProtocol(network, x, y).run(0.5, 0.9)
        found[returned] = any("`state`" in remark for remark in report["remarks"])
    assert found == {"tensor": True, "tuple": False, "none": False}
