"""skeleton is the same at every load, and its labels match its card."""

import torch
from skeleton.dataset import PLUGIN


def test_it_is_the_same_every_time():
    first, again = (PLUGIN.load(torch.device("cpu"), None, seed) for seed in (1, 2))
    assert first.digest == again.digest and torch.equal(first.test_images, again.test_images)


def test_its_shapes_and_labels_are_those_of_its_card():
    splits, card = PLUGIN.load(torch.device("cpu"), None, 0), PLUGIN.card
    assert tuple(splits.train_images.shape) == (card.train_samples, *card.image_shape)
    assert splits.train_labels.dtype == torch.int64 and splits.train_labels.unique().tolist() == list(
        range(card.classes)
    )
