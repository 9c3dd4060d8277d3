"""teacher_student: one task for all seeds, and a dial that takes it from linear to not."""

from __future__ import annotations

import pytest
import torch

from fa_registry import datasets
from fa_registry.datasets.teacher_student import ALPHAS, PLUGIN, TeacherStudent, activation
from fa_registry.errors import UnknownName

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tasks():
    return {alpha: TeacherStudent(alpha).load(CPU) for alpha in ALPHAS}


@pytest.mark.parametrize("alpha", ALPHAS)
def test_sizes_are_those_of_the_card_and_every_class_is_common(tasks, alpha):
    splits, card = tasks[alpha], TeacherStudent(alpha).card
    assert splits.train_images.shape == (card.train_samples, *card.image_shape)
    assert splits.test_images.shape == (2_560, *card.image_shape)
    for labels in (splits.train_labels, splits.test_labels):
        shares = labels.bincount(minlength=card.classes) / len(labels)
        assert len(shares) == card.classes and shares.min() > 0.05 and shares.max() < 0.15


def test_the_dial_turns_a_linear_task_into_one_that_is_not(tasks):
    from sklearn.linear_model import LogisticRegression  # takes longer to import than the test takes

    scores = []
    for alpha in ALPHAS:
        splits = tasks[alpha]
        line = LogisticRegression(max_iter=50)
        line.fit(splits.train_images[:3_000].flatten(1), splits.train_labels[:3_000])
        scores.append(line.score(splits.test_images.flatten(1), splits.test_labels))
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.85 and scores[-1] < 0.65, scores


def test_inputs_are_shared_by_all_alphas_and_labels_are_not(tasks):
    first, last = tasks[0.0], tasks[1.0]
    assert torch.equal(first.train_images, last.train_images)
    assert not torch.equal(first.train_labels, last.train_labels)


def test_the_run_s_seed_changes_nothing(tasks):
    assert TeacherStudent(0.5).load(CPU, None, seed=9).digest == tasks[0.5].digest
    assert len({splits.digest for splits in tasks.values()}) == len(ALPHAS)


def test_the_activation_is_the_papers():
    z = torch.linspace(-3, 3, 13)
    assert torch.equal(activation(z, 0.0), z)
    assert torch.equal(activation(z, 1.0), z.tanh())
    assert torch.allclose(activation(z, 0.25), 0.75 * z + 0.25 * torch.tanh(z))


@pytest.mark.parametrize(
    ("argument", "alpha", "name"),
    [
        ("", 1.0, "teacher_student"),
        ("1.0", 1.0, "teacher_student"),
        ("0", 0.0, "teacher_student:0"),
        (".50", 0.5, "teacher_student:0.5"),
    ],
)
def test_one_alpha_has_one_name(argument, alpha, name):
    member = PLUGIN.of(argument)
    assert (member.alpha, member.card.name) == (alpha, name)
    assert datasets.get(name) == member


@pytest.mark.parametrize("argument", ["0.3", "2", "nan", "half", "-1"])
def test_another_alpha_is_refused_with_the_choices(argument):
    with pytest.raises(UnknownName, match=f"unknown α of teacher_student '{argument}'.*; known: 0, 0.25, 0.5, 1$"):
        datasets.get(f"teacher_student:{argument}")
