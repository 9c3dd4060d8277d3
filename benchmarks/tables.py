"""An audit's groups as rows of a Markdown table, and putting such a table between the markers of a page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from fa_registry import jsonio
from fa_registry import metrics as catalogue
from fa_registry.metrics import metric_named
from fa_registry.protocol.grouping import Group
from fa_registry.records import AuditReport, Reading
from fa_registry.reporting.report_values import Values
from fa_registry.statistics import summary

END = "<!-- /measured -->"
COLUMNS = (
    "method",
    "accuracy [95 % interval over seeds and test samples]",
    "max growth (arithmetic mean)",
    "‖g_L‖ (mean CE; arithmetic mean)",
    "Γ deep mean",
)


def audit_of(reports: Path) -> AuditReport:
    """The audit in a folder that a command has written."""
    return jsonio.decode(AuditReport, json.loads((reports / "audit.json").read_text(encoding="utf-8")))


def header(edition: str) -> list[str]:
    """The first two lines of a table of `row`s."""
    columns = [*COLUMNS, f"verdict {edition}"]
    return ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]


def row(group: Group) -> list[str]:
    """One method in one setting, over its seeds, in the order of the header."""
    gradient = [run.record.measurements.sites["g_norm_mean_ce"][-1] for run in group.runs]
    return [
        group.method,
        main_metric(group, "accuracy"),
        over_seeds(readings(group, "growth_max"), ".3g"),
        over_seeds(gradient, ".2g"),
        over_seeds(readings(group, "gamma_deep_mean"), ".3f"),
        labels(group),
    ]


def main_metric(group: Group, name: str) -> str:
    """The mean of the main metric over seeds, with the 95 % interval of the report's pages."""
    found = Values().estimate(group.runs, metric_named(name))
    text = over_seeds([value.number.reading for value in found.values], ".3f")
    return text if found.low.value is None else f"{text} [{found.low.value:.3f}, {found.high.value:.3f}]"


def over_seeds(found: Sequence[Reading], form: str) -> str:
    """The mean of a run's readings; of how many where some are missing; or why none is there."""
    known = [reading.value for reading in found if reading.value is not None]
    if not known:
        return f"n/a: {'; '.join(dict.fromkeys(reading.reason for reading in found))}"
    text = format(summary(known).mean, form)
    return text if len(known) == len(found) else f"{text} ({len(known)} of {len(found)} seeds)"


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def verdict(met: bool) -> str:
    """Of an aim, in a word."""
    return "met" if met else "missed"


def scales(group: Group) -> list[str]:
    """Growth of a block, growth since initialisation, ‖h_L‖ and ‖g_L‖ (mean CE): means over the seeds."""
    found = {name: readings(group, name) for name in ("growth_max", "growth_init_max", "h_L")}
    found["g_norm"] = [run.record.measurements.sites["g_norm_mean_ce"][-1] for run in group.runs]
    means = (mean(name, values) for name, values in found.items())
    return ["n/a" if value is None else f"{value:.3g}" for value in means]


def mean(name: str, at: Sequence[Reading]) -> float | None:
    """The mean over seeds, of the kind that fits the metric."""
    return catalogue.over_seeds(enumerate(at), name).mean.value


def gamma(group: Group) -> str:
    """Γ over seeds, or "exact" for a method whose credit is the gradient."""
    text = over_seeds(readings(group, "gamma_deep_mean"), ".3f")
    return "exact" if text.startswith("n/a") else text


def margin(group: Group, name: str, form: str) -> str:
    """The margin of D3 with its interval. name: "margin_pp" or "margin_nats"."""
    finding = next((one for one in group.runs[0].findings if one.quantity == name and one.interval), None)
    if finding is None:
        return "control" if group.control else "n/a"
    low, high = finding.interval
    return f"{format(finding.observed.value, form)} [{format(low, form)}, {format(high, form)}]"


def labels(group: Group) -> str:
    """The verdicts of the seeds, each once."""
    return ", ".join(dict.fromkeys(run.verdict.label for run in group.runs))


def readings(group: Group, name: str) -> list[Reading]:
    """A scalar of every run."""
    return [run.record.measurements.scalars[name] for run in group.runs]


def inserted(page: str, begin: str, block: str) -> str:
    """The page with the text between the marker `begin` and END replaced."""
    found, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(END)}", lambda _: f"{begin}\n{block}\n{END}", page, flags=re.S
    )
    if not count:
        raise ValueError(f"the page has no marker {begin}")
    return found
