"""Groups of runs: one method in one setting with several seeds; settings that are nearly equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fa_registry.jsonio import is_finite
from fa_registry.protocol.integrity import recorded_main_metric
from fa_registry.protocol.verdict import combine_verdicts, is_intact
from fa_registry.records import AuditReport, OtherRun, RunAudit, RunRecord, RunSpec, Verdict

Item = TypeVar("Item")
ENDED = ("diverged", "complete")  # statuses of runs whose training ended; the later entry has precedence


@dataclass(frozen=True)
class Group:
    """Runs of one method in one setting, one run per seed.

    `duplicates` are further runs of these seeds, oldest first. The duplicates do not count.
    """

    method: str
    setting: str
    control: bool
    runs: tuple[RunAudit, ...]
    verdict: Verdict
    duplicates: tuple[RunAudit, ...] = ()

    @property
    def every_run(self) -> tuple[RunAudit, ...]:
        """The runs that count, followed by the duplicates."""
        return (*self.runs, *self.duplicates)


def frozen_controls(records: Iterable[RunRecord]) -> dict[tuple[str, int], tuple[RunRecord, ...]]:
    """Return a mapping (setting identity, seed) → frozen controls.

    `records` are the runs, oldest first. Only complete runs are included. A control is excluded if its recomputed metrics
    differ from its logged metrics. If several controls have equal final weights, only the newest one is included. Therefore, if
    a seed has several controls, their results differ.
    """
    controls: dict[tuple[str, int], tuple[RunRecord, ...]] = {}
    for record in records:
        if record.spec.control == "frozen" and record.status == "complete" and is_intact(record):
            key = (record.spec.setting.identity, record.spec.seed)
            controls[key] = (
                *(control for control in controls.get(key, ()) if not is_repetition(control, record)),
                record,
            )
    return controls


def newest_controls(records: Iterable[RunRecord], control: str) -> dict[tuple[str, int], RunRecord]:
    """Return a mapping (setting identity, seed) → the newest complete control of this name.

    A control is excluded if its recomputed metrics differ from its logged metrics.
    """
    return {
        (record.spec.setting.identity, record.spec.seed): record
        for record in records
        if record.spec.control == control and record.status == "complete" and is_intact(record)
    }


def left_out_runs(judged: Iterable[RunSpec], unaudited: Sequence[OtherRun]) -> tuple[OtherRun, ...]:
    """Return the unaudited runs without which the judged runs are a selection.

    A finished run is in the result if no run of its group with its seed was judged, or if the judged run of its seed is older.
    A frozen control is in the result only if a method has its seed, because the paired differences contain no other control.
    """
    seeds: dict[str, set[int]] = {}
    method_seeds: dict[str, set[int]] = {}
    specs = tuple(judged)
    for spec in specs:
        seeds.setdefault(spec.seeds, set()).add(spec.seed)
    for spec in (*specs, *(other.spec for other in unaudited)):
        if spec.control == "none":
            method_seeds.setdefault(spec.setting.identity, set()).add(spec.seed)
    return tuple(
        other
        for other in unaudited
        if other.finished
        and (other.newer or other.spec.seed not in seeds.get(other.spec.seeds, ()))
        and (other.spec.control == "none" or other.spec.seed in method_seeds.get(other.spec.setting.identity, ()))
    )


def is_repetition(run: RunRecord, other: RunRecord) -> bool:
    """Return whether two runs have the same final weights and the same main metric.

    Weights that are not finite have no digest. Two runs with such weights must be equal in all metrics.
    """
    digests = [record.provenance.get("final_weights") for record in (run, other)]
    if not any(digests):
        return run.measurements == other.measurements
    values = [recorded_main_metric(record) for record in (run, other)]
    return digests[0] == digests[1] and values[0] == values[1]


def one_a_seed(items: Iterable[Item], record_of: Callable[[Item], RunRecord]) -> dict[int, Item]:
    """Return a mapping from each seed to the item that counts. `record_of` returns the run of an item.

    The items are in the order of their runs, oldest first. The newest complete run counts. If no run is complete, the newest
    diverged run counts. If no run diverged either, the newest run counts. A run whose recomputed metrics differ from its logged
    metrics counts only if all runs of the seed differ in this way.
    """
    counted_items: dict[int, Item] = {}
    for item in items:
        seed = record_of(item).spec.seed
        if seed not in counted_items or _rank(record_of(item)) >= _rank(record_of(counted_items[seed])):
            counted_items[seed] = item
    return counted_items


def _rank(record: RunRecord) -> tuple[bool, int]:
    return is_intact(record), ENDED.index(record.status) if record.status in ENDED else -1


def seeds_key(spec: RunSpec) -> str:
    """Return the key `RunSpec.seeds`, which all seeds of one method in one setting have in common."""
    return spec.seeds


def groups(report: AuditReport) -> tuple[Group, ...]:
    """Return one group per setting and method.

    Settings have the order of the report. Within a setting, methods come before controls.
    """
    runs_of_group: dict[str, list[RunAudit]] = {}
    for run in report.runs:
        runs_of_group.setdefault(seeds_key(run.record.spec), []).append(run)
    specs = {key: runs[0].record.spec for key, runs in runs_of_group.items()}
    settings = {key: spec.setting.identity for key, spec in specs.items()}
    order = {setting: index for index, setting in enumerate(dict.fromkeys(settings.values()))}
    ordered = sorted(runs_of_group, key=lambda key: (order[settings[key]], specs[key].control != "none"))
    return tuple(_group(runs_of_group[key]) for key in ordered)


def _group(runs: Sequence[RunAudit]) -> Group:
    counted_runs = one_a_seed(runs, lambda run: run.record)
    by_seed = tuple(counted_runs[seed] for seed in sorted(counted_runs))
    first = by_seed[0].record
    return Group(
        method=first.spec.method_label,
        setting=first.setting,
        control=first.spec.control != "none",
        runs=by_seed,
        verdict=combine_verdicts(run.verdict for run in by_seed),
        duplicates=tuple(run for run in runs if counted_runs[run.record.spec.seed] is not run),
    )


def duplicate_remarks(records: Iterable[RunRecord]) -> Iterator[str]:
    """Yield a remark for every seed with several runs: which run counts, and which runs do not."""
    runs_of_group: dict[str, list[RunRecord]] = {}
    for record in records:
        runs_of_group.setdefault(seeds_key(record.spec), []).append(record)
    for runs in runs_of_group.values():
        for seed, newest in one_a_seed(runs, lambda record: record).items():
            duplicates = [run for run in runs if run.spec.seed == seed and run is not newest]
            if duplicates:
                duplicates_text = ", ".join(f"{run.run_id} ({run.status})" for run in duplicates)
                yield (
                    f"Seed {seed} of {newest.spec.label}, {newest.setting}, has {len(duplicates) + 1} runs but counts once. Run "
                    f"{newest.run_id} counts, because it is the newest {newest.status} run of this seed; not counted: "
                    f"{duplicates_text}."
                )


NEAR = 0.01  # largest difference, as a share of the larger number
SEEDED = ("seed", "weights")  # fields that may differ between the runs of one setting
Differing = dict[str, tuple[float, float]]  # field → its two numbers


class NearSettings:
    """Index that finds judged specifications whose numbers are nearly equal to given numbers.

    Specifications that differ only in the seed count once.
    """

    def __init__(self, specs: Iterable[RunSpec]):
        first_by_seeds: dict[str, RunSpec] = {}
        for spec in specs:
            first_by_seeds.setdefault(spec.seeds, spec)
        self._by_skeleton: dict[tuple[tuple[str, Any], ...], list[tuple[RunSpec, dict[str, Any]]]] = {}
        for spec in first_by_seeds.values():
            fields = dict(_fields(spec))
            self._by_skeleton.setdefault(_skeleton(fields), []).append((spec, fields))
        self._found: dict[str, list[tuple[RunSpec, Differing]]] = {}

    def near(self, spec: RunSpec) -> list[tuple[RunSpec, Differing]]:
        """Return each judged specification near `spec`, with the fields that differ.

        The fields are a mapping from each field to (value in the judged specification, value in `spec`).
        """
        if spec.seeds not in self._found:
            fields = dict(_fields(spec))
            candidates = self._by_skeleton.get(_skeleton(fields), ())
            self._found[spec.seeds] = [
                (judged, differing) for judged, numbers in candidates if (differing := _differing(numbers, fields))
            ]
        return self._found[spec.seeds]


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Differing:
    """Return the differing numbers of two specifications with equal skeletons."""
    # the seed is not a field here, so specifications that differ only in the seed have no differences
    differing = {name: (first[name], second[name]) for name in first if first[name] != second[name]}
    return differing if all(_is_near(*pair) for pair in differing.values()) else {}


def _skeleton(fields: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a specification, with a placeholder for every number."""
    return tuple((name, "number" if is_finite(value) else value) for name, value in fields.items())


def _fields(spec: RunSpec) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name == "recipe":
            yield from (("recipe." + name, item_value) for name, item_value in vars(value).items())
        elif isinstance(value, Mapping):
            yield from ((f"{field.name}.{name}", item_value) for name, item_value in sorted(value.items()))
        elif field.name not in SEEDED:
            yield field.name, value
    yield "adopted", bool(spec.weights)


def _is_near(first: Any, second: Any) -> bool:
    return is_finite(first) and is_finite(second) and abs(first - second) <= NEAR * max(abs(first), abs(second))


def describe_difference(differing: Mapping[str, tuple[float, float]]) -> str:
    """Return e.g. `learning_rate 0.0010000001 instead of 0.001` for the pair (0.001, 0.0010000001)."""
    pairs_by_name = {name.rpartition(".")[2]: pair for name, pair in differing.items()}
    return ", ".join(f"{name} {second!r} instead of {first!r}" for name, (first, second) in pairs_by_name.items())
