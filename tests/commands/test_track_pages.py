"""Pages of an audited run of a user-supplied loop: every advice can be followed."""

from __future__ import annotations

import re

import pytest
import torch

import fa_registry
from tests.commands.test_track import CLASSES, Residual, train_one_epoch


@pytest.mark.parametrize("controls", [(False,), (False, True)])
def test_no_command_is_advised_that_trains_a_network_of_the_users_script(workplace, caplog, controls):
    """A loop that broke is to be run again too, and no run of a loop counts as trained again."""
    caplog.set_level("INFO", "fa_registry")
    batch = torch.randn(16, 5, generator=torch.Generator().manual_seed(1)), torch.arange(16) % CLASSES
    for control, breaks in ((False, True), *((control, False) for control in controls)):
        torch.manual_seed(0)
        model = Residual()
        try:
            with fa_registry.track(model, eval=batch, method="mine", seed=7, control=control) as run:
                train_one_epoch(model, batch)
                run.epoch(test_accuracy=1 / (2 * (not breaks)))
        except ZeroDivisionError:
            assert breaks
    fa_registry.audit(experiment="fa_registry", out="out")
    pages = [path for path in (workplace / "out").rglob("*") if path.suffix in (".md", ".html")]
    text = "\n".join(path.read_text("utf-8") for path in pages)
    assert not re.search(r"fa-registry (train|study)|mlflow run|pip install|git checkout|epochs=0", text)
    assert "fa_registry.track(…, dataset=" in text and "seed=7, epochs=1, control=True)" in text
    assert "learning rate 0.001" not in text and "trained again completely" not in caplog.text
