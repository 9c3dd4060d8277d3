"""Every rule is found once in each sample that has its pitfall, and not in code that only looks like it."""

from __future__ import annotations

import pytest

from tests.lint.rules import (
    altered_cosine,
    batch_accuracy,
    chosen_runs,
    clamped_cosine,
    frozen_constant,
    half_gradients,
    mean_reduced,
    nan_mean,
    negative_norm,
    training_mode,
    unequal_reference,
    unintended_code,
    unsaved_feedback,
    wrong_statistics,
)
from tests.lint.samples import codes

SAMPLES = {
    "FA001": negative_norm,
    "FA002": clamped_cosine,
    "FA003": half_gradients,
    "FA006": nan_mean,
    "FA007": unsaved_feedback,
    "FA008": mean_reduced,
    "FA009": batch_accuracy,
    "FA010": frozen_constant,
    "FA011": chosen_runs,
    "FA012": training_mode,
    "FA015": altered_cosine,
    "FA016": unequal_reference,
    "FA017": unintended_code,
    "FA018": wrong_statistics,
}


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, file in SAMPLES.items() for text in file.FIRES])
def test_a_pitfall_is_found_once(code, text):
    assert codes(text) == [code]


@pytest.mark.parametrize("text", [text for file in SAMPLES.values() for text in file.SILENT])
def test_other_code_is_not_reported(text):
    assert codes(text) == []
