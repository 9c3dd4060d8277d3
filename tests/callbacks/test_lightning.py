"""The Lightning callback: the real Trainer, and the figures of the same loop written by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.errors import InvalidFields
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.test_track import Residual, record_of
from tests.own_models.test_tokens import Decoder, X, Y, loss_per_token

pytestmark = [
    pytest.mark.long,  # Lightning is loaded in ten seconds
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # of its own use of torch
]
fa_registry.torchvision()  # Lightning imports it, which fails with a CPU torch until its operators are declared
lightning = pytest.importorskip("lightning.pytorch")


class Module(lightning.LightningModule):
    def __init__(self, breaks: bool = False):
        super().__init__()
        self.network, self.breaks = Residual(), breaks

    def forward(self, x):
        return self.network(x)

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        if self.breaks and self.current_epoch:
            raise ZeroDivisionError
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, index):
        self.log("val_acc", (self.network(batch[0]).argmax(1) == batch[1]).double().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class TokenModule(Module):
    """A decoder that logs its test loss per token."""

    def __init__(self):
        super().__init__()
        self.network = Decoder()

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.network(batch[0]).flatten(0, 1), batch[1].flatten())
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", loss_per_token(self.network))


def data():
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(16) % 3


def fit(module, samples=None, **options):
    from fa_registry.external.callbacks.lightning import LightningCallback

    samples = samples or data()
    callback = LightningCallback(model=lambda module: module.network, eval=samples, method="mine", seed=7, **options)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", callbacks=[callback], num_sanity_val_steps=0, **quiet)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples), batch_size=16)
    trainer.fit(module, loader, loader)
    return callback


def test_a_fit_is_the_run_of_the_same_loop_written_by_hand(workplace):
    torch.manual_seed(0)
    callback = fit(Module())
    torch.manual_seed(0)
    module = Module()
    optimizer, (x, y) = module.configure_optimizers(), data()
    with fa_registry.track(module.network, eval=(x, y), method="mine", seed=7) as run:
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module.network(x), y).backward()
            optimizer.step()
            run.epoch(test_accuracy=(module.network(x).argmax(1) == y).double().mean().item())
    theirs, ours = record_of(callback), record_of(run)
    for name in ("h_L", "g_L", "accuracy"):
        assert list(theirs.trajectory[name]) == list(ours.trajectory[name]), name
    assert [reading.value is not None for reading in theirs.trajectory["loss_train"]][1:] == [True, True]


@pytest.mark.parametrize("options", [{}, {"test_loss": "val_loss"}, {"test_loss": "another"}])
def test_a_fit_on_tokens_reports_its_test_loss_per_token(workplace, options):
    torch.manual_seed(0)
    module = TokenModule()
    record = record_of(fit(module, (X, Y), **options))
    assert record.status == "complete" and "accuracy" not in record.measurements.scalars
    final = record.measurements.scalars["token_loss"]
    if "another" in options.values():  # a name that the module does not log
        assert final.value is None and final.reason
        return
    assert final.value == pytest.approx(loss_per_token(module.network))
    assert [reading.value is not None for reading in record.trajectory["token_loss"]] == [False, True, True]


def test_a_fit_that_breaks_is_a_failed_run_with_what_it_had(workplace):
    with pytest.raises(ZeroDivisionError):
        fit(Module(breaks=True))
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run"})
    assert run.state == "FAILED" and "h_L" in run.metrics


def test_what_is_wrong_shows_before_the_first_step(workplace):
    with pytest.raises(InvalidFields, match="epochs: "):
        fit(Module(breaks=True), epochs="many")
