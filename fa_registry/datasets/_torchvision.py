"""torchvision's data sets, imported when first needed and with its one known fault mended."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

from fa_registry.errors import UsageError

OPERATORS = ("nms", "qnms")  # torchvision describes these two to torch without asking whether they exist
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_datasets() -> ModuleType:
    """The module torchvision.datasets; UsageError where it is not installed.

    A torchvision whose compiled operators do not load (built for another torch: CUDA's beside a CPU torch) stops at
    `operator torchvision::nms does not exist` while importing, though no data set needs an operator. Only after that very
    failure both are declared, without code, and the import is repeated; any other failure is raised as it is.
    """
    try:
        return importlib.import_module("torchvision.datasets")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise UsageError('torchvision is not installed: pip install "fa_registry[images]"') from error
    except RuntimeError as error:
        if str(error) not in {f"operator torchvision::{name} does not exist" for name in OPERATORS}:
            raise
    for name in OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", SCHEMA)
    return importlib.import_module("torchvision.datasets")
