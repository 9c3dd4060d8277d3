"""random_crop: a true window of each image, all channels at one place."""

from __future__ import annotations

import torch

from fa_registry.datasets._crop import random_crop


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
