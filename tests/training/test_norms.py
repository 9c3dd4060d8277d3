"""norm(c) = c / scales(c): what a credit is divided by before it acts."""

import pytest
import torch

from fa_registry.training.norms import normalised, scales


def test_rms_norm_is_per_sample_and_over_features():
    credit = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-30.0, 40.0]], dtype=torch.float64)
    rms = 12.5**0.5
    assert scales(credit, "rms").flatten().tolist() == pytest.approx([rms + 1e-6, 1e-6, 10 * rms + 1e-6], rel=1e-12)
    assert (credit / scales(credit, "rms"))[1].tolist() == [0.0, 0.0]
    assert scales(credit, "none") == 1


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
