"""Pitfall 3 fires where float16 meets a gradient that nothing has scaled."""

from __future__ import annotations

BACKWARD = "\nloss.backward()"
FIRES = [
    "import torch\nmodel.half()" + BACKWARD,
    "import torch\nx.to(torch.float16)" + BACKWARD,
    "import torch\nx.to(device, dtype=torch.half)" + BACKWARD,
    "import torch\nx.type(torch.HalfTensor)" + BACKWARD,
    "import torch\ntorch.set_default_dtype(torch.float16)" + BACKWARD,
    "import torch\ntorch.autocast('cuda')" + BACKWARD,
    "import torch\ntorch.autocast(device, torch.float16)" + BACKWARD,
    "from torch.cuda.amp import autocast\nautocast()" + BACKWARD,
    "from torch.amp import autocast as a\nfrom torch import float16 as f16\na('cpu', dtype=f16)" + BACKWARD,
    "import torch\nmodel.half()\ntorch.autograd.grad(loss, h)",
    "from torch.autograd import grad\nmodel.half()\ngrad(loss, h)",
    "from torch import func\nmodel.half()\nfunc.grad(f)(x)",
    "import torch\nmodel.half()\nscaler.scale(loss).backward()\nother.backward()",
    "import torch\nmodel.half()\nx = scaler.scale(loss)\nloss.backward()",
    "import torch\nm = torch.tensor(-1e9)\nm = model(x)\nm.half()\nloss.backward()",
    "import torch\nself.register_buffer('w', torch.randn(3))\nself.w.half()\nloss.backward()",
]
SILENT = [
    "import torch\nmodel.half()",
    "import torch\nmodel.half()\nclass F(torch.autograd.Function):\n    def backward(ctx, g):\n        return g",
    "import torch\nmodel.half()\nscaler.scale(loss).backward()",
    "import torch\nmodel.half()\nscaled = self.scaler.scale(loss)\nscaled.backward()",
    "import torch\nmodel.half()\nloss = scaler.scale(loss)\nnet.step(loss)\ndef step(loss):\n    loss.backward()",
    "import torch\nmodel.half()\nwith amp.scale_loss(loss, o) as scaled:\n    scaled.backward()",
    "import torch\nmodel.half()\ntorch.autograd.grad(scaler.scale(loss), h)",
    "import torch\nwith torch.no_grad():\n    y = model.half()(x)" + BACKWARD,
    "import torch\n@torch.inference_mode()\ndef f(model):\n    return model.half()" + BACKWARD,
    "import torch\nmodel.to(torch.bfloat16)\nmodel.bfloat16()" + BACKWARD,
    "import torch\ntorch.autocast('cuda', dtype=torch.bfloat16)" + BACKWARD,
    "import torch\ntorch.autocast('cuda', enabled=False)" + BACKWARD,
    "import torch\ntorch.autocast('cpu')\ntorch.autocast(device)" + BACKWARD,
    "from torch.cuda.amp import autocast\nautocast(False)" + BACKWARD,
    "import numpy as np\nx.astype(np.float16)" + BACKWARD,
    "import torch\nscreen.half(3)" + BACKWARD,
    "import torch\nself.m = torch.nn.Buffer(torch.tensor(-1e4))\nx = self.m.half()" + BACKWARD,
    "import torch\nself.register_buffer('m', torch.tensor(-1e9))\nx = self.m.to(torch.float16)" + BACKWARD,
    "import torch\nlowest = torch.full((3,), torch.finfo(torch.float32).min)\nx = lowest.half()" + BACKWARD,
    "import torch\nx = torch.tensor(-10000.0).half()" + BACKWARD,
]
