"""Pages of an audited run of a user-supplied loop: every advice can be followed, and a measured Γ has a sentence."""

from __future__ import annotations

import re

import pytest
import torch

import fa_registry
from tests.commands.test_track import CLASSES, Residual, dfa, train_one_epoch


@pytest.fixture
def pages(workplace):
    """Return a function that trains a loop, with or without its control, and returns the text of all pages of its audit."""
    batch = torch.randn(16, 5, generator=torch.Generator().manual_seed(1)), torch.arange(16) % CLASSES

    def written(controls, fails=False, **options):
        for control in controls:
            torch.manual_seed(0)
            model = Residual()
            with fa_registry.track(model, eval=batch, method="mine", seed=7, control=control, **options) as run:
                if fails:
                    raise ZeroDivisionError
                train_one_epoch(model, batch)
                run.epoch(test_accuracy=0.5)
        fa_registry.audit(experiment="fa_registry", out="out")
        return "\n".join(
            path.read_text("utf-8") for path in (workplace / "out").rglob("*") if path.suffix in (".md", ".html")
        )

    return written


@pytest.mark.parametrize("controls", [(False,), (False, True)])
def test_no_command_is_advised_that_trains_a_network_of_the_users_script(pages, controls):
    text = pages(controls)
    assert not re.search(
        r"fa-registry (train|study)|mlflow run|pip install|git checkout|audit without --trust-logged", text
    )
    assert "# run your training loop again: fa_registry.track(…, dataset='own-" in text
    assert "seed=7, epochs=1, control=True)" in text
    assert "as in the user's training loop · epochs 1 · device cpu" in text and "learning rate 0.001" not in text


def test_a_loop_that_failed_is_to_be_run_again_without_a_number_of_epochs(pages):
    with pytest.raises(ZeroDivisionError):
        pages((False,), fails=True)
    text = pages((False, True))
    assert "Some runs or metrics are missing" in text and "epochs=0" not in text
    assert re.search(r"again: fa_registry\.track\(…, dataset=&#39;own-\w+&#39;, seed=7, (method|control)=", text)


def test_a_measured_gamma_has_a_sentence(pages):
    torch.manual_seed(0)
    readout = Residual().out_head.weight.detach().T  # the initial readout, so Γ is large on every processor
    text = pages((False, True), credit=dfa([readout] * 2))
    assert "is open: one seed does not decide" in text
    assert "`fresh` was not given" in text or "\\`fresh\\` was not given" in text


def test_no_run_of_a_loop_counts_as_trained_again(pages, caplog):
    with caplog.at_level("INFO", "fa_registry"):
        pages((False, True))
    assert "trained again completely" not in caplog.text
