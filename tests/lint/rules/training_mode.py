"""Pitfall 12 fires on measurements of a model with dropout or BatchNorm that nothing switches to eval mode."""

from __future__ import annotations

HEAD = "import torch, torchvision\nfrom torch import nn\nimport torch.nn.functional as F\n"
ACCURACY = "def accuracy(x, y):\n    return (model(x).argmax(1) == y).float().mean()\n"
TRAINS = "def train(x, y):\n    acc = (model(x).argmax(1) == y).sum()\n    loss.backward()\n"
COSINE = "def gamma(a, b):\n    return F.cosine_similarity(a, b, eps=1e-30)\n"
MODELS = [
    "model = nn.Dropout(0.5)\n",
    "model = nn.BatchNorm2d(8)\n",
    "model = torchvision.models.resnet18()\n",
    "class Net(nn.Module):\n    def __init__(self):\n        self.d = torch.nn.Dropout2d()\n",
]
FIRES = [
    *(HEAD + model + ACCURACY for model in MODELS),
    HEAD + MODELS[0] + TRAINS + ACCURACY,
    HEAD + MODELS[0] + ACCURACY + "model.train()\n",
    HEAD + MODELS[0] + ACCURACY + "model.train(True)\n",
    HEAD + "# feedback alignment\n" + MODELS[1] + COSINE,
]
ABOUT = HEAD + "# feedback alignment\n"
MEASURED = "def gamma(net, a, b):\n    net.train()\n    return F.cosine_similarity(net(a), b, eps=1e-30)\nnet.eval()\n"
FROZEN = "for block in net.blocks:\n    block.bn.weight.requires_grad_(False)\n"
TRAINED = "def fit(net):\n    net.train()\n    optimizer.step()\nnet.eval()\n"
FIRES += [ABOUT + MODELS[0] + MEASURED, ABOUT + MODELS[1] + FROZEN + TRAINED]
SILENT = [
    ABOUT + MODELS[0] + MEASURED.replace("train()", "eval()"),
    ABOUT + MODELS[0] + MEASURED.replace("    return", "    net.eval()\n    return"),
    ABOUT + MODELS[0] + TRAINED,
    ABOUT + MODELS[1] + TRAINED,
    ABOUT + MODELS[1] + FROZEN + TRAINED + "net.blocks[0].bn.eval()\n",
    HEAD + MODELS[0] + ACCURACY.replace("== y", "== 3"),
    HEAD + MODELS[0] + ACCURACY.replace("== y", "== model.config.eos"),
    HEAD + "model = nn.Linear(8, 8)\n" + ACCURACY,
    HEAD + MODELS[0] + TRAINS,
    HEAD + MODELS[0] + COSINE,
    *(HEAD + MODELS[0] + ACCURACY + switched for switched in ("model.eval()\n", "model.train(False)\n")),
    *(HEAD + MODELS[0] + ACCURACY + switched for switched in ("model.train(mode)\n", "model.training = False\n")),
]
