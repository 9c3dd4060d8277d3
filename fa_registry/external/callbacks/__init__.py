"""Callbacks for third-party trainers, one module per trainer. The callbacks call `track`.

Lightning and the models of the library transformers import torchvision. This package therefore first repairs that import.
"""

from contextlib import suppress

from fa_registry.datasets._files import torchvision
from fa_registry.errors import UsageError

with suppress(UsageError):  # torchvision is not installed, so no trainer imports it
    torchvision()
