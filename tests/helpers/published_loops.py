"""The published training loops once more, from their description (arXiv 2606.21126; none of their code was at hand): plain torch.

Three networks under the published state-dict names, and one loop for bp, fa, dfa and the frozen control: autograd on losses that
are written out, an optimiser and a cosine schedule for embedding, head and every block. Nothing of fa_registry is in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

EPS = 1e-6
RATE, DECAY = 1e-3, 0.01

Batch = tuple[Tensor, Tensor]  # images (N, …), labels (N,)


class ResMLP(nn.Module):
    """h + w2(GELU(w1(LN(h)))) on states (N, D)."""

    class Block(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.ln, self.w1, self.w2 = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, h: Tensor) -> Tensor:
            return h + self.w2(nn.functional.gelu(self.w1(self.ln(h))))

    def __init__(self, pixels: int, width: int, depth: int, classes: int):
        super().__init__()
        self.embed = nn.Linear(pixels, width)
        self.blocks = nn.ModuleList(self.Block(width) for _ in range(depth))
        self.out_ln, self.out_head = nn.LayerNorm(width), nn.Linear(width, classes)

    def stem(self, x: Tensor) -> Tensor:
        return self.embed(x.flatten(1))

    def head(self, h: Tensor) -> Tensor:
        return self.out_head(self.out_ln(h))


class ViT(nn.Module):
    """Pre-LN transformer blocks on tokens (N, 1 + patches, D), torch's own attention; the class token is read."""

    class Block(nn.Module):
        def __init__(self, width: int, heads: int):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
            layers = nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * width, width)
            self.mlp = nn.Sequential(*layers, nn.Dropout(0.0))

        def forward(self, h: Tensor) -> Tensor:
            normed = self.ln1(h)
            h = h + self.attn(normed, normed, normed, need_weights=False)[0]
            return h + self.mlp(self.ln2(h))

    def __init__(self, image: tuple[int, ...], patch: int, width: int, heads: int, depth: int, classes: int):
        super().__init__()
        channels, height, breadth = image
        self.patch_embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + (height // patch) * (breadth // patch), width))
        self.blocks = nn.ModuleList(self.Block(width, heads) for _ in range(depth))
        self.out_ln, self.out_head = nn.LayerNorm(width), nn.Linear(width, classes)

    def stem(self, x: Tensor) -> Tensor:
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2)  # (N, patches, D)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1) + self.pos_embed

    def head(self, h: Tensor) -> Tensor:
        return self.out_head(self.out_ln(h)[:, 0])


class ResNet(nn.Module):
    """Post-activation basic blocks on maps (N, width, H, W); the average of the last map is read."""

    class Block(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)

        def forward(self, h: Tensor) -> Tensor:
            return torch.relu(h + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(h))))))

    def __init__(self, channels: int, width: int, depth: int, classes: int):
        super().__init__()
        self.stem_conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(self.Block(width) for _ in range(depth))
        self.out_head = nn.Linear(width, classes)

    def stem(self, x: Tensor) -> Tensor:
        return torch.relu(self.stem_bn(self.stem_conv(x)))

    def pooled(self, h: Tensor) -> Tensor:
        return h.mean(dim=(2, 3))

    def head(self, h: Tensor) -> Tensor:
        """Of a map, or of one that is pooled."""
        return self.out_head(self.pooled(h) if h.dim() == 4 else h)


Net = ResMLP | ViT | ResNet
# logits, labels, gradient of the mean loss for what the head reads -> c_0..c_L
Credits = Callable[[Tensor, Tensor, Tensor], list[Tensor]]


def train_published(
    network: Net, method: str, feedback: Mapping[str, Tensor], epochs: Iterable[list[Batch]], count: int
) -> None:
    """Train `network` in place: bp, fa, dfa or frozen, on `count` epochs of batches. feedback: B_01, B_02, …, by name."""
    if method in ("bp", "frozen"):
        step, parts = _backprop, [_outside(network) + (_blocks(network) if method == "bp" else [])]
    else:
        outside = [list(nn.ModuleList(_readout(network)).parameters())]
        stem = [one for one in _outside(network) if all(one is not other for other in outside[0])]
        step, parts = _local, [stem, *(list(block.parameters()) for block in network.blocks), *outside]
    optimisers = [torch.optim.AdamW(part, lr=RATE, weight_decay=DECAY) for part in parts]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(one, T_max=count) for one in optimisers]
    matrices = list(feedback.values())
    network.train()
    if method == "frozen":
        network.blocks.requires_grad_(False).eval()
    for batches in epochs:
        for images, labels in batches:
            step(network, optimisers, images, labels, {"fa": fa(matrices), "dfa": dfa(matrices)}.get(method))
        for schedule in schedules:
            schedule.step()


def fa(matrices: list[Tensor]) -> Credits:
    """c_L is the gradient of the mean cross entropy for what the head reads: of maps their average, one row a sample.

    c_{l-1} = c_l B_l, one row a sample.
    """

    def credits(logits: Tensor, labels: Tensor, top: Tensor) -> list[Tensor]:
        found, row = [top], top.sum(dim=1) if top.dim() == 3 else top  # tokens: of their average
        for matrix in reversed(matrices):
            row = row @ matrix
            found.insert(0, row)
        return found

    return credits


def dfa(matrices: list[Tensor]) -> Credits:
    """c_l = (softmax − onehot) B_lᵀ, and B_1 again for the embedding."""

    def credits(logits: Tensor, labels: Tensor, top: Tensor) -> list[Tensor]:
        error = logits.softmax(dim=1)
        error[range(len(labels)), labels] -= 1
        return [error @ matrix.T for matrix in (matrices[0], *matrices)]

    return credits


def _backprop(network: Net, optimisers: list, images: Tensor, labels: Tensor, _: None) -> None:
    h = network.stem(images)
    for block in network.blocks:
        h = block(h)
    _descend(optimisers[0], nn.functional.cross_entropy(network.head(h), labels))


def _local(network: Net, optimisers: list, images: Tensor, labels: Tensor, rule: Credits) -> None:
    """One pass for the states and the error, then stem, blocks and head each forward again, descending on its own loss."""
    with torch.no_grad():
        hidden = [network.stem(images)]
        for block in network.blocks:
            hidden.append(block(hidden[-1]))
    top = (network.pooled(hidden[-1]) if isinstance(network, ResNet) else hidden[-1]).requires_grad_()
    logits = network.head(top)
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), top)
    credits = [normed(credit) for credit in rule(logits.detach(), labels, gradient)]
    _descend(optimisers[0], local_loss(network.stem(images), credits[0]))
    for block, optimiser, h, credit in zip(network.blocks, optimisers[1:], hidden, credits[1:], strict=False):
        _descend(optimiser, local_loss(block(h.detach()) - h.detach(), credit))
    _descend(optimisers[-1], nn.functional.cross_entropy(network.head(top.detach()), labels))


def normed(credit: Tensor) -> Tensor:
    """c / (rms over everything of a sample + ε)."""
    rms = credit.flatten(1).pow(2).mean(dim=1).sqrt()
    return credit / (rms + EPS).view(-1, *[1] * (credit.dim() - 1))


def local_loss(output: Tensor, credit: Tensor) -> Tensor:
    """mean over samples of <output, credit>; of a row a sample, mean over samples and positions."""
    if credit.dim() == output.dim():
        return (output * credit).flatten(1).sum(dim=1).mean()
    if output.dim() == 3:
        return (output * credit[:, None, :]).sum(dim=2).mean()
    return (output * credit[:, :, None, None]).sum(dim=1).mean()


def _readout(network: Net) -> list[nn.Module]:
    return [module for name, module in network.named_children() if name in ("out_ln", "out_head")]


def _blocks(network: Net) -> list[nn.Parameter]:
    return list(network.blocks.parameters())


def _outside(network: Net) -> list[nn.Parameter]:
    return [one for name, one in network.named_parameters() if not name.startswith("blocks.")]


def _descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
