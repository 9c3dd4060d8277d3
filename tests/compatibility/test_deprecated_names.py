"""Old public names are the new objects, with a warning that names them; other names are still unknown."""

from __future__ import annotations

import importlib

import pytest

import fa_registry
from fa_registry.deprecated_names import MODULES, NAMES

PAIRS = [(module, old, new) for module, names in NAMES.items() for old, new in names.items()]


@pytest.mark.parametrize(("module", "old", "new"), PAIRS)
def test_an_old_name_is_the_new_object(module, old, new):
    if "adapters" in module:
        fa_registry.torchvision()
    home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {module}.{new}"):
        assert getattr(home, old) is getattr(home, new)


def test_moved_modules_give_what_they_gave():
    with pytest.warns(DeprecationWarning, match=r"quantities.Quantity is now fa_registry.metrics.Metric"):
        from fa_registry.quantities import Quantity
    from fa_registry.metrics import Metric

    assert Quantity is Metric
    with pytest.warns(DeprecationWarning, match="published_api.diagnose"):
        from fa_registry.api import diagnose
    from fa_registry.published_api import diagnose as new

    assert diagnose is new


@pytest.mark.parametrize("module", [*MODULES, *NAMES])
def test_what_nobody_named_is_unknown(module):
    if "adapters" in module:
        fa_registry.torchvision()
    with pytest.raises(AttributeError):
        importlib.import_module(module).no_such_name  # noqa: B018
