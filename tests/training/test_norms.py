"""norm(c) = c / scales(c): what a credit is divided by before it acts."""

import pytest
import torch

from fa_registry.training.step import norm_eps, normalised, scales


def test_rms_norm_is_per_sample_and_over_features():
    credit = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-30.0, 40.0]], dtype=torch.float64)
    rms = 12.5**0.5
    assert scales(credit, "rms").flatten().tolist() == pytest.approx([rms + 1e-6, 1e-6, 10 * rms + 1e-6], rel=1e-12)
    assert (credit / scales(credit, "rms"))[1].tolist() == [0.0, 0.0]
    assert scales(credit, "none") == 1


@pytest.mark.parametrize("count", [1, 6, 128])
@pytest.mark.parametrize(("credit_scale", "held"), [("sum", lambda count: 1), ("mean", lambda count: count)])
def test_eps_acts_where_the_source_holds_its_credit(credit_scale, held, count):
    """norm(c) here is norm(c/N) there, ε = 1e-6 in both: of credits about as small as ε, where it decides."""
    credit = torch.randn(count, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1e-5
    published = credit / held(count)
    expected = published / (published.square().mean(dim=1, keepdim=True).sqrt() + 1e-6) / count
    (found,) = normalised([credit], "rms", count, norm_eps(credit_scale, count))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_without_a_norm_there_is_no_eps():
    credit = torch.tensor([[3e-6, 4e-6]])
    assert torch.equal(normalised([credit], "none", 1, norm_eps("mean", 128))[0], credit)


def test_rms_norm_of_a_map_is_over_all_its_entries():
    credit = torch.full((2, 3, 4, 5), 7.0)
    torch.testing.assert_close(credit / scales(credit, "rms"), torch.ones(2, 3, 4, 5))


@pytest.mark.parametrize("kind", ["rms", "none"])
@pytest.mark.parametrize("shapes", [[(6, 5)] * 3, [(6, 5), (6, 4)], [(6, 2, 3, 3)] * 2, [(6, 5), (6, 2, 5)], [(6, 5)]])
def test_sites_together_are_bit_equal_to_one_by_one(kind, shapes):
    draw = torch.Generator().manual_seed(0)
    credits = [torch.randn(shape, generator=draw) for shape in shapes]
    found = normalised(credits, kind, 6)
    assert len(found) == len(credits)
    for one, credit in zip(found, credits, strict=True):
        assert torch.equal(one, credit / (scales(credit, kind) * 6))


@pytest.mark.parametrize("width", [10, 16, 33, 256])
def test_a_credit_that_lies_transposed_is_summed_as_it_lies(width):
    draw = torch.Generator().manual_seed(0)
    credits = [torch.randn(width, 6, generator=draw).T, torch.randn(6, width, generator=draw)]
    credits.append(torch.randn(6, width + 3, generator=draw)[:, :width])  # as a narrower site's rows of a bridge lie
    for one, credit in zip(normalised(credits, "rms", 6), credits, strict=True):
        assert torch.equal(one, credit / (scales(credit, "rms") * 6))
