"""Options of audits, comparisons, reports and bundles.

Each option is declared once, in a group. To add an option, add a field to the group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_registry.errors import InvalidFields, UsageError
from fa_registry.evidence.options import RecomputeOptions
from fa_registry.option_table import MISSING, option
from fa_registry.process_ownership import try_writing
from fa_registry.studies.options import edition_option


def thresholds(pairs: Iterable[str]) -> dict[str, float]:
    """Return the thresholds of the `--threshold RULE=NUMBER` options by rule code.

    Raises:
        InvalidFields: an option is not of the form RULE=NUMBER, or a rule occurs twice.
    """
    limits: dict[str, float] = {}
    problems = []
    for pair in pairs:
        rule, _, number = pair.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not rule.strip() or not math.isfinite(value):
            problems.append(f"--threshold {pair}: expected RULE=NUMBER, e.g. D1=100")
        elif rule.strip() in limits:
            problems.append(f"--threshold {pair}: {rule.strip()} is given twice")
        limits[rule.strip()] = value
    if problems:
        raise InvalidFields("thresholds", problems)
    return limits


@dataclass(frozen=True)
class JudgingOptions:
    """Options that decide how runs are judged: editions, thresholds and waivers."""

    edition: str = edition_option()
    editions: tuple[str, ...] = option(
        (),
        "Several editions that judge the runs. If the study's edition is given, the study's edition is the leading edition.",
        is_list=True,
        metavar="E,E,…",
        completes="editions",
    )
    thresholds: Mapping[str, float] = option(
        None,
        "Change the threshold of a rule of the leading edition, which is then marked as modified. Repeatable.",
        "--threshold",
        python="Mapping from a rule to a number that replaces its threshold in the leading edition, which is then marked as "
        "modified.",
        pairs=thresholds,
        metavar="RULE=NUMBER",
    )
    waivers: str = option(
        "",
        "TOML file of waivers: findings that are not counted, with reasons [the file that the study names].",
        metavar="FILE",
    )
    strict: bool = option(
        False, "Judge as the published code does: FAIL if any rule fires. Short for --edition 2026-05:strict."
    )


@dataclass(frozen=True)
class ComparisonOptions(RecomputeOptions):
    """Options of the command `compare`."""

    setting: str = option("", "Compare only settings whose name contains this text.", metavar="TEXT")


@dataclass(frozen=True)
class ReportOutput:
    """Folder in which pages are written, and the user's templates."""

    out: str = option("reports", "Folder to which the pages are written.")
    templates: str = option(
        "",
        "Folder of your templates. A template replaces the built-in template with the same file name. Templates run in a sandbox.",
        metavar="DIR",
    )

    @property
    def own_templates(self) -> Path | None:
        return Path(self.templates) if self.templates else None


@dataclass(frozen=True)
class ReportPages(ReportOutput):
    """Output of the command `report`."""

    columns: tuple[str, ...] = option(
        (),
        "Metrics in audit_table.tex, at most 5 [the main metric, its margin, growth_max, g_norm_mean_ce_L, gamma_deep_mean].",
        is_list=True,
        metavar="METRIC,…",
    )


@dataclass(frozen=True)
class AnalysisOutput(ReportOutput):
    """Folder in which the results of analyses are written."""

    out: str = option("reports/analyses", "Folder for the JSON, CSV and PNG files.")


@dataclass(frozen=True)
class AuditSource:
    """Selection of an audit in a store, for rendering the pages of this audit again."""

    study: str = option("", "Use the newest audit of this study in the store.", metavar="NAME", completes="studies")
    epochs: int | str = option("", "Use the newest audit of the study whose runs have this number of epochs.")
    seeds: tuple[Any, ...] = option(
        (), "Use the newest audit of the study whose runs have exactly these seeds.", is_list=True, metavar="S,S,…"
    )


@dataclass(frozen=True)
class BundleOptions:
    """Content of a bundle."""

    study: str = option(
        MISSING, "Study whose newest audit is written into the bundle.", metavar="NAME", completes="studies"
    )
    out: str = option(
        "", "Path of the bundle. An existing file is replaced only if it is a bundle [NAME.fa.zip].", metavar="FILE"
    )
    light: bool = option(False, "Omit weights and feedback. Metrics cannot be recomputed from such a bundle.")
    sign: str = option("", "Sign the bundle with the private Ed25519 key in this PEM file.", metavar="KEY")
    licence: str = option("", "Licence of the content, e.g. CC-BY-4.0 [no licence].", metavar="SPDX")


@dataclass(frozen=True)
class SignerOptions:
    """The expected signer of a bundle."""

    key: str = option("", "Public key (PEM file) that must have signed the bundle.", metavar="PUBLIC")


@dataclass(frozen=True)
class BundleChecks(SignerOptions):
    """How a bundle is checked."""

    quick: bool = option(
        False, "Check the digests, pages and verdicts of a bundle, without recomputing metrics and without training."
    )


def checked_pages(pages: ReportOutput, problems: list[str]) -> None:
    """Append errors in the output folder and in the user's templates to `problems`.

    The check is made before the runs are judged, because an error at the end would waste the work.
    """
    from fa_registry.reporting.render import output_conflicts, template_problems  # jinja2, not needed for `--help`

    if pages.own_templates:
        problems += template_problems(pages.own_templates)
    try:
        try_writing(Path(pages.out))
        problems += (f"out: {reason}" for reason in output_conflicts(Path(pages.out)))
    except UsageError as error:
        problems.append(f"out: {error}")
