"""How to reproduce a form: the checkout, a line for every run and its frozen control, and the audit. Read from the records."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from fa_registry.provenance import NOT_A_CHECKOUT
from fa_registry.records import AuditReport, RunAudit, RunRecord
from fa_registry.reporting.identification import UNKNOWN, sealed_code
from fa_registry.reporting.naming import command
from fa_registry.reporting.readings import Frozen


def lines(runs: Sequence[RunAudit], report: AuditReport, frozen: Frozen) -> tuple[str, ...]:
    """Lines for a POSIX shell, in their order; a # says what a line cannot give again."""
    controls = dict.fromkeys(run.frozen_run_id for run in runs if run.frozen_run_id)
    records = [run.record for run in runs] + [frozen.runs[one] for one in controls if one in frozen.runs]
    by_checkout: dict[str, list[RunRecord]] = {}
    for record in records:
        by_checkout.setdefault(_checkout(record), []).append(record)
    packages = dict.fromkeys(line for record in records for line in _packages(record))
    trained = [line for checkout, held in by_checkout.items() for line in (checkout, *map(_training, held))]
    absent = [f"# frozen control {one}: not part of this report" for one in controls if one not in frozen.runs]
    return (*packages, *trained, *absent, _audit(runs, report))


def _checkout(record: RunRecord) -> str:
    """The commit that the run was trained from, and what it lacks of what was there."""
    commit, dirty = record.provenance.get("commit"), record.provenance.get("dirty")
    if not commit or commit == NOT_A_CHECKOUT or str(commit).startswith(UNKNOWN):
        version = record.provenance.get("fa_registry") or (record.provenance.get("versions") or {}).get("fa_registry")
        return _comment(f"commit: {commit or 'not recorded'}; fa_registry {version or 'of a version not recorded'}")
    line = f"git checkout {shlex.quote(str(commit))}"
    if dirty:
        return f"{line}  # the tree was DIRTY: what was changed after this commit was not recorded"
    return line if dirty is False else f"{line}  # whether the tree was clean is not known"


def _packages(record: RunRecord) -> Iterator[str]:
    """Installing what another package brought to the run. A release by that number may hold other code: hence the digest."""
    for name, entry in sealed_code(record).items():
        if "digest" in entry:
            release = " ".join(f"{entry.get('package')}=={entry.get('version')}".split())
            member = f"{name}: source sha256 {entry['digest']}"
            yield f"pip install {shlex.quote(release)}  {_comment(member)}"


def _training(record: RunRecord) -> str:
    line = command(record.spec)
    return f"{line}  # the frozen control" if record.spec.control == "frozen" else line


def _audit(runs: Sequence[RunAudit], report: AuditReport) -> str:
    """The line that judges again: the study where one was audited, else the runs that the lines above have made."""
    editions = [report.edition.name, *(opinion.edition.name for opinion in report.opinions)]
    options = list(_chosen(runs, report))
    options.append(f"--{'editions' if len(editions) > 1 else 'edition'} {shlex.quote(','.join(editions))}")
    options += [f"--threshold {shlex.quote(f'{name}={value}')}" for name, value in report.edition.overrides.items()]
    line = f"fa-registry audit {' '.join(options)}"
    remarks = (
        [] if report.choice and report.choice.study else ["RUN: the id of each run that the lines above have made"]
    )
    if report.waivers:
        remarks.append("with the waivers.toml whose waivers this report names")
    return f"{line}  {_comment('; '.join(remarks))}" if remarks else line


def _chosen(runs: Sequence[RunAudit], report: AuditReport) -> Iterator[str]:
    if report.choice is None or not report.choice.study:
        yield "--run RUN"
        return
    yield f"--study {shlex.quote(report.choice.study)}"
    for name, value in report.choice.asked.items():
        yield f"--{name} {shlex.quote(value.replace(', ', ','))}"
    yield f"--device {shlex.quote(runs[0].record.spec.device_class)}"


def _comment(text: str) -> str:
    """On one line, whatever the words are: they are foreign, and what follows a line end would be run."""
    return f"# {' '.join(text.split())}"
