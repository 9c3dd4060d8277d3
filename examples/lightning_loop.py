"""A Lightning module and its frozen control: one callback. Needs `pip install 'fa_registry[lightning]'`.

python examples/lightning_loop.py    some seconds; writes mlflow.db and reports/ into the current folder
"""

import torch
from torch import nn

import fa_registry

fa_registry.torchvision()  # Lightning imports torchvision, which fails with a CPU torch until this is called
import lightning.pytorch as pl  # noqa: E402

from fa_registry.external.callbacks.lightning import LightningCallback  # noqa: E402

torch.manual_seed(7)
x, y = torch.randn(256, 20), torch.arange(256) % 4


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(20, 32)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(3))
        self.out_head = nn.Linear(32, 4)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out_head(h)


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = Residual()

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_acc", (self.network(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64)
trainer = {"max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
for control in (False, True):
    pl.seed_everything(7)
    tracking = LightningCallback(
        model=lambda module: module.network,
        eval=(x[:128], y[:128]),
        method="bp",
        seed=7,
        control=control,
        experiment="lit",
    )
    pl.Trainer(**trainer, callbacks=[tracking]).fit(Module(), loader, loader)

print(fa_registry.audit(experiment="lit"))
