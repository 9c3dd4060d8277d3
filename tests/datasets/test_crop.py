"""Crops: a true window of each image, all channels at one place."""

from __future__ import annotations

import pytest
import torch

from fa_registry.datasets._transform import random_crop, random_crop_and_flip


def test_each_crop_is_a_window_of_its_own_image():
    images = torch.arange(5 * 2 * 6 * 6, dtype=torch.float32).reshape(5, 2, 6, 6)
    crops = random_crop(images, 4, torch.Generator().manual_seed(0))
    assert crops.shape == (5, 2, 4, 4)
    for image, crop in zip(images, crops, strict=True):
        top, left = ((image[0] == crop[0, 0, 0]).nonzero()[0]).tolist()
        assert torch.equal(crop, image[:, top : top + 4, left : left + 4])


def test_a_crop_of_the_whole_image_is_the_image():
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(random_crop(images, 4, torch.Generator()), images)


def test_about_half_of_the_windows_are_mirrored_and_the_draw_of_places_is_that_of_random_crop():
    images = torch.rand(400, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    plain = random_crop(images, 4, torch.Generator().manual_seed(0))
    crops = random_crop_and_flip(images, 4, torch.Generator().manual_seed(0))
    mirrored = torch.tensor([torch.equal(crop, one.flip(2)) for crop, one in zip(crops, plain, strict=True)])
    straight = torch.tensor([torch.equal(crop, one) for crop, one in zip(crops, plain, strict=True)])
    assert torch.equal(mirrored, ~straight)
    assert 160 < mirrored.sum() < 240  # four standard deviations


def test_windows_reach_every_place_of_an_image_that_is_not_square():
    images = torch.arange(5 * 7, dtype=torch.float32).view(1, 1, 5, 7).expand(2_000, 1, 5, 7)
    corners = random_crop(images, 4, torch.Generator().manual_seed(0))[:, 0, 0, 0]
    assert sorted(corners.unique().tolist()) == [0, 1, 2, 3, 7, 8, 9, 10]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_every_crop_is_a_window_too():
    images = torch.arange(64 * 40 * 40, dtype=torch.float32, device="cuda").reshape(64, 1, 40, 40)
    crops = random_crop_and_flip(images, 32, torch.Generator("cuda").manual_seed(0))
    step = crops[:, 0, 0, 1] - crops[:, 0, 0, 0]
    assert crops.device == images.device and set(step.tolist()) == {1.0, -1.0}
    first = torch.where(step > 0, crops[:, 0, 0, 0], crops[:, 0, 0, -1]).long()
    for image, crop, place, forth in zip(images, crops, first.tolist(), (step > 0).tolist(), strict=True):
        top, left = divmod(place % 1600, 40)
        window = image[:, top : top + 32, left : left + 32]
        assert torch.equal(crop, window if forth else window.flip(2))
