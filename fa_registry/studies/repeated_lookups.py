"""Imports and lookups that all training jobs need, with results that stay equal during a command.

The fork server of `local_process` imports this module, so each job starts with the built-in plug-ins and with the results in the
caches of these functions. Nothing here opens a store, starts a thread or imports a third-party plug-in, because all jobs inherit
the state of the server.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress

from fa_registry import diagnostics, methods, plugin_registry, provenance, tasks
from fa_registry.tracking.client import newest_revision

with suppress(Exception):  # an error would end the server; each job repeats the lookup and reports the error
    for package in (diagnostics, methods, tasks):
        for name in package.CATALOG.builtin_names():
            importlib.import_module(f"{package.__name__}.{name}")
    plugin_registry.entry_points(tuple(sys.path))
    newest_revision()
    provenance.commit()
    provenance.versions()
