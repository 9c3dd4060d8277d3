"""Lightning and transformers import torchvision, which fails with a CPU torch until its operators are declared."""

import fa_registry

fa_registry.torchvision()
