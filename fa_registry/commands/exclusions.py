"""Runs that cannot be judged, with whose seed each would have been: its method's form must not be silent about it."""

from __future__ import annotations

import json

from fa_registry import jsonio
from fa_registry.errors import RegistryError
from fa_registry.records import Exclusion, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.training.naming import run_name, setting_label


def exclusion(
    tracker: Tracker, run: StoredRun, reason: str, failure: str = "", spec: RunSpec | None = None
) -> Exclusion:
    """A stored run that cannot be judged. spec: where the caller knows it; else it is read from the run's own file."""
    tags = run.tags
    named = tags.get(schema.TAG_METHOD, ""), tags.get(schema.TAG_SETTING, "")
    return Exclusion(run.run_id, run.name, reason, failure, *named, spec or own_spec(tracker, run))


def never_trained(spec: RunSpec) -> Exclusion:
    """A specification that was asked for and has no run."""
    named = spec.method_label, setting_label(spec)
    return Exclusion("", run_name(spec), "no run of this specification yet", "", *named, spec)


def own_spec(tracker: Tracker, run: StoredRun) -> RunSpec | None:
    """What the run's spec.json says; None where it is missing, unreadable, or not the one that the run's tag names.

    Why the run cannot be judged is told elsewhere: here a broken file only means that its tags are all that is known.
    """
    try:
        path = tracker.artifact(run.run_id, schema.SPEC)
        held = json.loads(path.read_text(encoding="utf-8")) if path else None
        spec = None if held is None else jsonio.decode(RunSpec, held, schema.SPEC)
    except (RegistryError, OSError, ValueError):  # no store, no file, no JSON, no specification
        return None
    return spec if spec and spec.identity == run.tags.get(schema.TAG_SPEC) else None
