"""What was run: the identification part of a form, from the specs, the cards and the runs' provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fa_registry.protocol.grouping import Group
from fa_registry.provenance import NOT_A_CHECKOUT
from fa_registry.records import AuditReport, RunRecord, RunSpec
from fa_registry.records.runs import pairs
from fa_registry.reporting.filters import num
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.parts import Entry, EntryValue

NOT_RECORDED = "not recorded"
UNKNOWN = "unknown"  # a commit that git could not name starts so


def identification(group: Group, report: AuditReport) -> tuple[Entry, ...]:
    """The entries of a form's first section, in its order."""
    records = [run.record for run in group.runs]
    first = records[0].spec
    method = card(report, "methods", first.method)
    return (
        one("Method", group_label(group)),
        one("Setting", group.setting),
        one("Rule", words(method.get("rule"))),
        one("Source", words(method.get("citation"))),
        *_architecture(records, report),
        *_data(records, report),
        one("Seeds", ", ".join(str(record.spec.seed) for record in records)),
        one("Feedback", words(method.get("feedback"))),
        each("Feedback file", records, _feedback),
        one("Recipe", _recipe(first, method.get("credit_scale", ""))),
        each("Hardware", records, lambda record: words(record.provenance.get("hardware"))),
        each("Threads", records, lambda record: words(record.provenance.get("threads"))),
        each("Versions", records, _versions),
        each("Commit", records, _commit),
        *_said("Code", records, _code),
        *_said("Conformance", records, _conformance),
        *_said("Resumed", records, _resumed),
        *_said("Adopted", records, _adopted),
        each("Eval batch", records, _eval_batch),
        each("Measured", records, lambda record: words(record.measurements.conventions)),
    )


def _architecture(records: Sequence[RunRecord], report: AuditReport) -> Iterator[Entry]:
    spec = records[0].spec
    line = card(report, "architectures", spec.architecture).get("line")
    yield one("Architecture", f"{spec.architecture}: {line}" if line else spec.architecture)
    yield one("Architecture options", pairs(spec.architecture_options).replace(",", ", ") or "the defaults")
    terminal = spec.architecture_options.get("terminal_ln")
    yield one("LayerNorm before the head", NOT_RECORDED if terminal is None else "yes" if terminal else "no")
    yield each("Parameters", records, lambda record: words(record.provenance.get("parameters")))


def _data(records: Sequence[RunRecord], report: AuditReport) -> Iterator[Entry]:
    name = records[0].spec.dataset
    data = card(report, "datasets", name)
    yield one("Data set", f"{name}: {data['line']}" if data.get("line") else name)
    for term in ("source", "licence", "splits", "normalisation", "augmentation"):
        if data.get(term):
            yield one(f"Data {term}", words(data[term]))
    yield each("Data digest", records, lambda record: words(record.provenance.get("dataset_digest")))


def card(report: AuditReport, family: str, name: str) -> Mapping[str, Any]:
    """The card of a plugin as the report carries it; empty where it carries none."""
    return report.cards.get(f"{family}/{name}", {})


def is_exact(method: Mapping[str, Any]) -> bool:
    """Whether the credit is the gradient at every site by construction, by the card of the method."""
    return method.get("exact_sites") == "all"


def one(term: str, text: str) -> Entry:
    return Entry(term, (EntryValue(text),))


def each(term: str, records: Sequence[RunRecord], read: Callable[[RunRecord], str]) -> Entry:
    """One value where all runs agree; else every distinct value with its runs."""
    found: dict[str, list[str]] = {}
    for record in records:
        found.setdefault(read(record), []).append(record.run_id)
    if len(found) == 1:
        return one(term, next(iter(found)))
    return Entry(term, tuple(EntryValue(text, tuple(ids)) for text, ids in found.items()))


def words(value: Any) -> str:
    """A recorded value as a reader wants it: mappings as `key value · key value`, counts with separators."""
    if value is None or value == "" or value == {} or value == ():
        return NOT_RECORDED
    if isinstance(value, Mapping):
        return " · ".join(f"{key} {words(item)}" for key, item in value.items() if item not in (None, ""))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return num(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(words(item) for item in value)
    return str(value)


def _feedback(record: RunRecord) -> str:
    feedback = record.feedback
    if not feedback.get("sha256"):
        return "none saved"
    tensors = feedback.get("tensors") or {}
    shapes = "; ".join(f"{name} {tuple(shape)}" for name, shape in sorted(tensors.items()))
    drawn = f"{feedback.get('distribution', NOT_RECORDED)} · seed {feedback.get('seed', NOT_RECORDED)}"
    return f"sha256 {feedback['sha256']} · {drawn} · {shapes}"


def _recipe(spec: RunSpec, credit_scale: str) -> str:
    """credit_scale: of the method's card; empty in reports of older releases."""
    recipe = spec.recipe
    scale = f" (ε in units of the {credit_scale} loss)" if credit_scale and recipe.credit_norm != "none" else ""
    text = (
        f"{recipe.optimizer}, learning rate {recipe.learning_rate:g}, weight decay {recipe.weight_decay:g}, "
        f"{recipe.schedule} schedule, batch {recipe.batch_size}, credit norm {recipe.credit_norm}{scale}, "
        f"{spec.epochs} epochs, {spec.precision} on {spec.device_class}"
    )
    return f"{text}, residual penalty λ = {spec.penalty:g}" if spec.penalty else f"{text}, no residual penalty"


def _versions(record: RunRecord) -> str:
    versions = record.provenance.get("versions") or {}
    named = {"fa_registry": record.provenance.get("fa_registry"), "python": record.provenance.get("python"), **versions}
    return words({name: value for name, value in named.items() if value})


def _commit(record: RunRecord) -> str:
    """The commit and the state of its tree; `clean` is said only where git said so."""
    commit, dirty = record.provenance.get("commit"), record.provenance.get("dirty")
    if not commit or commit == NOT_A_CHECKOUT or str(commit).startswith(UNKNOWN):
        return words(commit)
    return f"{commit} ({'tree unknown' if dirty is None else 'tree was DIRTY' if dirty else 'clean tree'})"


def sealed_code(record: RunRecord) -> Mapping[str, Mapping[str, Any]]:
    """The code that the run's files name, member by member; nothing of runs of older releases."""
    code = record.provenance.get("code")
    return (
        {name: entry for name, entry in code.items() if isinstance(entry, Mapping)} if isinstance(code, Mapping) else {}
    )


def _code(record: RunRecord) -> str:
    """The code that trained the run: versions of our own members, package and source of others; empty in older runs."""
    shown = {
        name: entry
        for name, entry in sealed_code(record).items()
        if "digest" in entry or not name.startswith("diagnostics/")
    }
    return " · ".join(f"{name.partition('/')[2]} {_entry(entry)}" for name, entry in shown.items())


def _entry(entry: Mapping[str, Any]) -> str:
    if "digest" not in entry:
        return f"version {entry.get('version')}"
    return f"of package {entry.get('package')} {entry.get('version')}, source sha256 {entry['digest']}"


def _conformance(record: RunRecord) -> str:
    """Of a method of another package; our own are held by this package's tests."""
    found = record.conformance
    if found is None or found.state == "own":
        return ""
    where = f" on {found.architecture}" if found.architecture else ""
    return f"{found.state}{where}{': ' if found.failures else ''}{'; '.join(found.failures)}"


def _said(term: str, records: Sequence[RunRecord], read: Callable[[RunRecord], str]) -> Iterator[Entry]:
    """The entry of those runs alone that `read` says something of, if any."""
    values = tuple(value for value in each(term, records, read).values if value.text)
    if values:
        yield Entry(term, values)


def _resumed(record: RunRecord) -> str:
    epoch = record.provenance.get("resumed_from") or 0
    return f"resumed after epoch {epoch}" if epoch > 0 else ""


def _adopted(record: RunRecord) -> str:
    """Of a run that was not trained here: its files and what was merely stated."""
    origin = record.provenance.get("origin")
    return words(origin) if origin else ""


def _eval_batch(record: RunRecord) -> str:
    """Which test samples were measured: how many, and the range of their indices; never the whole list."""
    indices = record.provenance.get("eval_indices")
    if not indices:
        return NOT_RECORDED
    least, largest = min(indices), max(indices)
    if len(indices) == 1:
        return f"1 sample, index {least}"
    every = len(set(indices)) == largest - least + 1
    return f"{num(len(indices))} samples, indices {'' if every else 'between '}{least} {'to' if every else 'and'} {largest}"
