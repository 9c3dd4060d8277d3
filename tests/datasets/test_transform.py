"""Normalisation, padding, crop and flip against torchvision's transforms, image by image."""

from __future__ import annotations

import pytest
import torch

from fa_registry.datasets import cifar10
from fa_registry.datasets._files import torchvision_datasets
from fa_registry.datasets._raw_images import RawImages
from fa_registry.datasets._transform import UNCHANGED, channel_moments, random_crop, random_crop_and_flip
from tests.datasets.official_files import pixels

CPU = torch.device("cpu")
SAMPLES, SEED = 40, 3


@pytest.fixture(scope="module")
def raw():
    train, test = (torch.from_numpy(pixels(SAMPLES, (3, 32, 32), seed)) for seed in (1, 2))
    labels = torch.arange(SAMPLES) % 10
    return RawImages(train, labels, test, labels)


def one_by_one(images: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """The published per-sample path: PIL image → RandomCrop(32, padding=4) → flip → ToTensor → Normalize.

    The draws are made as in the package, all tops, all lefts, all flips; what is compared is what is done with them.
    """
    torchvision_datasets()
    from torchvision.transforms import functional

    top, left = (torch.randint(9, (len(images),), generator=draw) for _ in range(2))
    mirrored = torch.rand(len(images), 1, generator=draw) < 0.5
    results = []
    for image, row, column, mirror in zip(images, top, left, mirrored, strict=True):
        picture = functional.to_pil_image(image)
        picture = functional.crop(functional.pad(picture, [4], fill=0), int(row), int(column), 32, 32)
        picture = functional.hflip(picture) if mirror else picture
        scaled = functional.to_tensor(picture)
        results.append(functional.normalize(scaled, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))
    return torch.stack(results)


def test_a_training_batch_is_bit_equal_to_the_published_per_sample_path(raw):
    splits = cifar10.PLUGIN.transform.splits(raw, CPU)
    assert splits.train_images.shape == (SAMPLES, 3, 40, 40)
    ours = splits.augment(splits.train_images, torch.Generator().manual_seed(SEED))
    assert torch.equal(ours, one_by_one(raw.train_images, torch.Generator().manual_seed(SEED)))


def test_the_frame_is_black_before_and_not_after_normalising(raw):
    corner = cifar10.PLUGIN.transform.splits(raw, CPU).train_images[0, :, 0, 0]
    assert torch.equal(corner, -torch.tensor([0.4914, 0.4822, 0.4465]) / torch.tensor([0.2470, 0.2435, 0.2616]))


def test_test_images_are_normalised_and_nothing_else(raw):
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))
    expected = raw.test_images.float().div(255).sub(mean).div(std)
    assert torch.equal(cifar10.PLUGIN.transform.splits(raw, CPU).test_images, expected)


def test_without_constants_the_training_images_give_them(raw):
    train = UNCHANGED.splits(raw, CPU).train_images
    assert train.shape == raw.train_images.shape
    assert train.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)
    assert train.std(dim=(0, 2, 3), correction=0).tolist() == pytest.approx([1] * 3, abs=1e-5)


def test_counted_moments_are_those_of_the_pixels(raw):
    exact = raw.train_images.double() / 255
    means, deviations = channel_moments(raw.train_images)
    assert means == pytest.approx(exact.mean(dim=(0, 2, 3)).tolist(), abs=1e-12)
    assert deviations == pytest.approx(exact.std(dim=(0, 2, 3), correction=0).tolist(), abs=1e-12)


def test_the_digest_sees_pixels_and_constants(raw):
    one = cifar10.PLUGIN.transform.splits(raw, CPU).digest
    other = RawImages(raw.train_images + 1, raw.train_labels, raw.test_images, raw.test_labels)
    digests = {one, cifar10.PLUGIN.transform.splits(other, CPU).digest, UNCHANGED.splits(raw, CPU).digest}
    assert len(digests) == 3


def test_each_crop_is_a_window_of_its_own_image():
    images = torch.arange(5 * 2 * 6 * 6, dtype=torch.float32).reshape(5, 2, 6, 6)
    crops = random_crop(images, torch.Generator().manual_seed(0), 4)
    assert crops.shape == (5, 2, 4, 4)
    for image, crop in zip(images, crops, strict=True):
        top, left = ((image[0] == crop[0, 0, 0]).nonzero()[0]).tolist()
        assert torch.equal(crop, image[:, top : top + 4, left : left + 4])


def test_a_crop_of_the_whole_image_is_the_image():
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(random_crop(images, torch.Generator(), 4), images)


def test_about_half_of_the_windows_are_mirrored_and_the_draw_of_places_is_that_of_random_crop():
    images = torch.rand(400, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    plain = random_crop(images, torch.Generator().manual_seed(0), 4)
    crops = random_crop_and_flip(images, torch.Generator().manual_seed(0), 4)
    mirrored = torch.tensor([torch.equal(crop, one.flip(2)) for crop, one in zip(crops, plain, strict=True)])
    straight = torch.tensor([torch.equal(crop, one) for crop, one in zip(crops, plain, strict=True)])
    assert torch.equal(mirrored, ~straight)
    assert 160 < mirrored.sum() < 240  # four standard deviations


def test_windows_reach_every_place_of_an_image_that_is_not_square():
    images = torch.arange(5 * 7, dtype=torch.float32).view(1, 1, 5, 7).expand(2_000, 1, 5, 7)
    corners = random_crop(images, torch.Generator().manual_seed(0), 4)[:, 0, 0, 0]
    assert sorted(corners.unique().tolist()) == [0, 1, 2, 3, 7, 8, 9, 10]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_every_crop_is_a_window_too():
    images = torch.arange(64 * 40 * 40, dtype=torch.float32, device="cuda").reshape(64, 1, 40, 40)
    crops = random_crop_and_flip(images, torch.Generator("cuda").manual_seed(0), 32)
    step = crops[:, 0, 0, 1] - crops[:, 0, 0, 0]
    assert crops.device == images.device and set(step.tolist()) == {1.0, -1.0}
    first = torch.where(step > 0, crops[:, 0, 0, 0], crops[:, 0, 0, -1]).long()
    for image, crop, place, forth in zip(images, crops, first.tolist(), (step > 0).tolist(), strict=True):
        top, left = divmod(place % 1600, 40)
        window = image[:, top : top + 32, left : left + 32]
        assert torch.equal(crop, window if forth else window.flip(2))
