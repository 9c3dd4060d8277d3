"""Direct feedback alignment on your own network, audited with its frozen control: six lines are added to the loop.

python examples/plain_loop.py    some seconds; writes mlflow.db and reports/ into the current folder
"""

import torch
from torch import nn

import fa_registry
from fa_registry.datasets import CATALOG

WIDTH, DEPTH, CLASSES, SEED, EPOCHS = 32, 3, 10, 7, 3
data = CATALOG.get("digits").load(torch.device("cpu"), None, SEED)
x_eval, y_eval = data.test_images[:128], data.test_labels[:128]
torch.manual_seed(SEED)
B = [torch.randn(WIDTH, CLASSES) / CLASSES**0.5 for _ in range(DEPTH)]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(144, WIDTH))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(DEPTH)
        )
        self.out_ln, self.out_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out_head(self.out_ln(h))


def error(model, x, y):
    return (model(x).softmax(1) - nn.functional.one_hot(y, CLASSES)).detach()


def credit(model, x, y):
    """What every block learns from, c_1 … c_L; none below the first."""
    return [None, *(error(model, x, y) @ matrix.T for matrix in B)]


def step(model, x, y):
    """Every block learns from its own credit, at states that no gradient leaves; the head from the exact loss."""
    h = [model.embed(x).detach()]
    for block, c in zip(model.blocks, credit(model, x, y)[1:], strict=True):
        h.append(h[-1] + block(h[-1]))
        (c * h[-1]).sum().div(len(x)).backward()
        h[-1] = h[-1].detach()
    nn.functional.cross_entropy(model.out_head(model.out_ln(h[-1])), y).backward()


def accuracy(model):
    with torch.no_grad():
        return (model(data.test_images).argmax(1) == data.test_labels).double().mean().item()


def train(model, run):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draw = torch.Generator().manual_seed(SEED)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(data.train_labels), generator=draw).split(128):
            optimizer.zero_grad()
            step(model, data.augment(data.train_images[batch], draw), data.train_labels[batch])
            optimizer.step()
        run.epoch(test_accuracy=accuracy(model))


known = {"method": "mine", "seed": SEED, "credit": credit, "dataset": "digits", "experiment": "plain loop"}
known["feedback"] = {f"B_{site}": matrix for site, matrix in enumerate(B, start=1)}
for control in (False, True):  # the method, and its frozen control of the same seed
    torch.manual_seed(SEED)
    model = Residual()
    with fa_registry.track(model, eval=(x_eval, y_eval), control=control, **known) as run:
        train(model, run)

print(fa_registry.audit(experiment="plain loop"))
