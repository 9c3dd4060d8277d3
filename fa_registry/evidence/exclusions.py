"""Result of recomputing one run, and the exclusion of a run that cannot be judged."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry import jsonio
from fa_registry.errors import RegistryError
from fa_registry.evidence.replayer import ReplayResult
from fa_registry.records import Exclusion, RunRecord, RunSpec
from fa_registry.text_safety import without_password
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker


@dataclass(frozen=True)
class RemeasuredRun:
    """Result of recomputing one run.

    Attributes:
        record: the run's record, or None if the run is excluded.
        first_steps: result of the replay of the first steps, or None if nothing was re-initialised.
        exclusion: reason why the run is excluded; None if the run is not excluded.
        whole: result of the complete replay, or None if the run was not chosen to be replayed completely.
    """

    run: StoredRun
    record: RunRecord | None = None
    first_steps: ReplayResult | None = None
    exclusion: Exclusion | None = None
    whole: ReplayResult | None = None

    @property
    def text(self) -> str:
        """One-line description of the result, with the duration of the replay."""
        if self.exclusion:
            return self.exclusion.reason
        replay = self.whole or self.first_steps
        cost = f"{replay.steps} steps replayed in {replay.seconds:.2f} s" if replay and replay.steps else ""
        return ", ".join(filter(None, (self.record.integrity.state if self.record else "", cost)))


INTEGRITY_FAILURE = "integrity failure"


def make_exclusion(
    tracker: Tracker, run: StoredRun, reason: str, failure: str = "", spec: RunSpec | None = None, kind: str = "broken"
) -> Exclusion:
    """Return the exclusion of a stored run that cannot be judged.

    Args:
        failure: traceback of the error, if there is one.
        spec: specification of the run. If None, the specification is read from the run's spec.json.
        kind: reason why the run was excluded, as one word of ExclusionKind.
    """
    tags = run.tags
    labels = tags.get(schema.TAG_METHOD, ""), tags.get(schema.TAG_SETTING, "")
    # an error may contain the store's address with its password, and other people read the pages
    reason, failure = map(without_password, (reason, failure))
    return Exclusion(run.run_id, run.name, reason, failure, *labels, spec or own_spec(tracker, run), kind)


def own_spec(tracker: Tracker, run: StoredRun) -> RunSpec | None:
    """Return the specification in the run's spec.json.

    The result is None if the file is missing or unreadable, or if the run's tag names another specification. Then the audit
    uses only the tags of the run, and another check reports the error.
    """
    spec = read_artifact(tracker, run, schema.SPEC, RunSpec)
    return spec if spec and spec.identity == run.tags.get(schema.TAG_SPEC) else None


def read_artifact(tracker: Tracker, run: StoredRun, name: str, kind: type):
    """Return an artifact of the run, decoded as `kind`, or None if it cannot be read."""
    try:
        path = tracker.artifact(run.run_id, name)
        return jsonio.decode(kind, jsonio.read_json(path), name) if path else None
    except RegistryError:
        return None
