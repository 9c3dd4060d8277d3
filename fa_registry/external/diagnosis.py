"""The published function `diagnose`: four diagnostics of one model.

By default, the edition `2026-04:first-release` judges the model. This edition contains the rules of the first release of the
published code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry import jsonio
from fa_registry.diagnostics import Observation
from fa_registry.diagnostics.stability import BATCHES, mean_pairwise_cosine
from fa_registry.external.one_batch import accuracy, checked, judged, measured, observed
from fa_registry.metrics import ACCURACY
from fa_registry.network_mode import gradients_enabled, usable_for_gradients
from fa_registry.protocol.rules import Edition, load_edition
from fa_registry.records import Measurements, Reading, RunAudit
from fa_registry.seeding import generators_unchanged
from fa_registry.tasks._user_loss import CROSS_ENTROPY, Loss, loss_name, user_task
from fa_registry.training.forward_traits import remarks_on
from fa_registry.training.input_validation import Batch, Checks

# This edition limits max ‖h_l‖ / ‖h_0‖ to 50 (growth of the whole stream), as in the published report.
EDITION = "2026-04:first-release"
STABILITY = "stability_mid"  # metric: cross-batch stability at the middle site
# (published flag, published name of its limit, metrics that its rule judges, published text in the verdict if the rule fires)
FLAGS = (
    ("residual_stream_exploded", "h_norm_explosion_ratio", ("growth", "h_norm"), "residual stream exploded"),
    ("bp_grad_at_floor", "g_norm_floor", ("g_norm", "g_norm_mean_ce"), "BP grad at numerical floor"),
    (
        "reference_drift_dominated",
        "stability_drift_ceiling",
        (STABILITY,),
        "BP grad direction is drift-dominated",
    ),
    (
        "frozen_baseline_undercut",
        "frozen_acc_margin_pp",
        (ACCURACY.name, ACCURACY.margin),
        "deep blocks fail to beat frozen-random baseline",
    ),
)
LINES = (  # flag, title and text that str() returns
    ("residual_stream_exploded", "residual stream", "‖h_0‖ {first:.4g}, max ‖h_l‖ {largest:.4g}"),
    ("bp_grad_at_floor", "BP reference", "‖g_L‖ {reference:.4g}"),
    ("reference_drift_dominated", "cross-batch stability", "{stability:.3f} at site {layer}"),
    ("frozen_baseline_undercut", "frozen baseline", "{headline:.4f} against {frozen:.4f}"),
)


@dataclass(frozen=True)
class DiagnosticThresholds:
    """Limits of the rules of an edition, under their published names.

    A limit is None if the edition has no such rule.

    Args:
        g_norm_floor: smallest ‖g_L‖ at which the reference gradient is still valid.
        h_norm_explosion_ratio: largest allowed growth of the residual stream, a ratio.
        stability_drift_ceiling: largest allowed mean pairwise cosine of the gradients of different batches.
        frozen_acc_margin_pp: smallest required accuracy gain over the frozen baseline, in percentage points.

    Source: class DiagnosticThresholds in protocol/report.py of the code that was released before arXiv 2606.21126.
    """

    g_norm_floor: float | None = None
    h_norm_explosion_ratio: float | None = None
    stability_drift_ceiling: float | None = None
    frozen_acc_margin_pp: float | None = None


@dataclass(frozen=True, repr=False)
class DiagnosisReport:
    """Results of four diagnostics of one model.

    If a value is None, `remarks` contains the reason.

    Args:
        method_name: name that the caller gave.
        headline_acc: accuracy that the caller gave, as a fraction.
        frozen_baseline_acc: accuracy of the frozen baseline that the caller gave, as a fraction.
        residual_norms: ‖h_l‖, l = 0..L. As published, this is the lower median over the samples of the first batch
            (torch.median). Other medians in this package are the midpoint of the two middle values.
        bp_grad_norms: ‖g_l‖ of the mean cross entropy over the first batch, also a lower median.
        stability_layer: ⌊L/2⌋.
        cross_batch_stability: mean pairwise cosine of the batches' mean gradients at site `stability_layer`.
        edition: name of the edition that judged the model.
        notes: notes that the caller gave.
        remarks: sentences about missing values and findings.
        thresholds: limits of the rules, in the unit of each rule (ratio, norm, cosine, percentage points).
        flags: name of a flag → whether its rule fires. The value is None if the flag could not be judged or was skipped. Each
            flag is also a property of the report.
        loss: name of the loss whose gradient was measured, or `function`.
    """

    method_name: str
    headline_acc: float | None
    frozen_baseline_acc: float | None
    residual_norms: tuple[float | None, ...]
    bp_grad_norms: tuple[float | None, ...]
    stability_layer: int
    cross_batch_stability: float | None
    verdict: str
    edition: str
    notes: str = ""
    remarks: tuple[str, ...] = ()
    thresholds: DiagnosticThresholds = DiagnosticThresholds()
    flags: Mapping[str, bool | None] = field(default_factory=dict)
    loss: str = CROSS_ENTROPY

    @property
    def residual_stream_exploded(self) -> bool | None:
        """Whether the growth of the residual stream exceeds its limit.

        The edition determines whether the growth of the whole stream or of one block is judged.
        """
        return self.flags.get("residual_stream_exploded")

    @property
    def bp_grad_at_floor(self) -> bool | None:
        """Whether ‖g_L‖ is below its floor."""
        return self.flags.get("bp_grad_at_floor")

    @property
    def reference_drift_dominated(self) -> bool | None:
        """Whether the gradients of different batches have nearly the same direction."""
        return self.flags.get("reference_drift_dominated")

    @property
    def frozen_baseline_undercut(self) -> bool | None:
        """Whether the accuracy is less than the frozen accuracy plus the required margin.

        The value is None if no frozen accuracy was given.
        """
        return self.flags.get("frozen_baseline_undercut")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values: the published keys, and edition, remarks and flags."""
        return jsonio.encode(self)

    def __repr__(self) -> str:
        return f"DiagnosisReport({self.method_name!r}, {self.verdict}, edition {self.edition})"

    def __str__(self) -> str:
        """Return the verdict, one line per diagnostic, and one line per remark."""
        name = f"{self.method_name}: " if self.method_name else ""
        lines = [f"{name}{self.verdict}", *(f"  {line}" for line in self._lines())]
        return "\n".join(
            [*lines, *(f"  note: {remark}" for remark in (*self.remarks, *([self.notes] if self.notes else [])))]
        )

    def _lines(self) -> Iterator[str]:
        norms = [norm for norm in self.residual_norms if norm is not None]
        values = {
            "largest": max(norms) if len(norms) == len(self.residual_norms) else None,
            "first": self.residual_norms[0],
            "reference": self.bp_grad_norms[-1],
            "stability": self.cross_batch_stability,
            "layer": self.stability_layer,
            "headline": self.headline_acc,
            "frozen": self.frozen_baseline_acc,
        }
        for flag, title, text in LINES:
            state = {True: "FIRES", False: "ok", None: "not judged"}[self.flags.get(flag)]
            field_names = [name for _, name, _, _ in Formatter().parse(text) if name]
            has_values = all(values[name] is not None for name in field_names)
            yield f"{title}: {state}" + (f", {text.format(**values)}" if has_values else "")


@generators_unchanged()
@gradients_enabled()
def diagnose(
    model: nn.Module,
    eval_batches: Iterable[tuple[Tensor, Tensor]],
    headline_acc: float | None = None,
    frozen_baseline_acc: float | None = None,
    method_name: str = "",
    notes: str = "",
    *,
    sites: Sequence[str] = (),
    edition: str = EDITION,
    loss: Loss = "",
) -> DiagnosisReport:
    """Run four diagnostics on one model and judge the results by an edition.

    The diagnostics are residual growth, validity of the reference gradient, cross-batch stability, and comparison with the
    frozen baseline. The function emits an EvidenceWarning if a batch has only one sample, or if all labels are of one class.

    Args:
        model: any model that FAProtocol accepts.
        eval_batches: disjoint batches of x (N, …) and y (N,), or tokens y (N, T); the published code uses 8 batches of 128
            samples. All norms are measured on the first batch. As published, ‖g‖ is computed from the mean loss of that batch, so
            the floor depends on N.
        headline_acc: accuracy on the whole test set, as a fraction.
        frozen_baseline_acc: accuracy of the frozen baseline on the whole test set, as a fraction.
        method_name: name of the method in the report.
        notes: text that is appended to the report.
        sites: as for `adapt`; ignored for a result of `adapt`.
        edition: name or .toml file of the edition. The default edition judges the growth of the whole stream,
            max ‖h_l‖ / ‖h_0‖ > 50, as in the published report. Edition `2026-04` judges the growth of each block.
        loss: loss that trains the model, as for `adapt`. The default is the loss that `adapt` received, or the cross entropy of
            logits.

    Raises:
        InvalidFields: lists all wrong arguments.

    Source: the code that was released before arXiv 2606.21126.
    """
    every_rule = load_edition(edition)
    rules, skip_remarks = _applicable(every_rule, frozen_baseline_acc)
    checks, network, batches, loss = _checked(model, sites, eval_batches, headline_acc, frozen_baseline_acc, loss)
    checks.finish()
    measurements, layer, zero = _measured(network, batches, headline_acc, loss)
    stability = measurements.scalars[STABILITY]
    audit = judged(measurements, frozen_baseline_acc, rules)
    return DiagnosisReport(
        method_name=method_name,
        headline_acc=_plain(headline_acc),
        frozen_baseline_acc=_plain(frozen_baseline_acc),
        residual_norms=_values(measurements, "h_norm"),
        bp_grad_norms=_values(measurements, "g_norm_mean_ce"),
        stability_layer=layer,
        cross_batch_stability=stability.value,
        verdict=_in_text(audit, rules),
        edition=rules.name,
        notes=notes,
        remarks=(
            *remarks_on(network, checks.traits),
            *filter(None, [zero]),
            *_remarks(batches, measurements, audit),
            *skip_remarks,
        ),
        thresholds=_thresholds(every_rule),
        flags=_flags(audit),
        loss=loss_name(loss),
    )


def _thresholds(edition: Edition) -> DiagnosticThresholds:
    limits = {name: rule.threshold for rule in edition.rules for _, name, *_ in _flag_of(rule.quantity)}
    return DiagnosticThresholds(**limits)


def _flag_of(quantity: str) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    return (flag for flag in FLAGS if quantity in flag[2])


def _flags(audit: RunAudit) -> dict[str, bool | None]:
    """Return a mapping flag → whether its rule fires; None if no rule decides the flag."""
    fires = {"fail": True, "pass": False}
    flags: dict[str, bool | None] = {flag: None for flag, *_ in FLAGS}
    for finding in audit.findings:
        for flag, *_ in _flag_of(finding.quantity):
            flags[flag] = fires.get(finding.outcome)
    return flags


def _in_text(audit: RunAudit, edition: Edition) -> str:
    """Return the label of the verdict; if the label ends with a colon, append the defects."""
    label = edition.labels.get("fail", "")
    if audit.verdict.outcome != "fail" or not label.endswith(":"):
        return audit.verdict.label
    fired = [finding for finding in audit.findings if finding.gating and finding.outcome == "fail"]
    text = ["".join(flag_text for *_, flag_text in _flag_of(finding.quantity)) or finding.title for finding in fired]
    return f"{label} {'; '.join(dict.fromkeys(text))}"


def _checked(
    model: nn.Module,
    sites: Sequence[str],
    eval_batches: Iterable[tuple[Tensor, Tensor]],
    headline: float | None,
    frozen: float | None,
    loss: Loss,
) -> tuple[Checks, nn.Module | None, list[Batch], Loss]:
    """Validate the arguments of `diagnose`.

    The caller must call `finish` on the returned Checks, which raises an error if an argument is wrong.
    """
    checks = Checks("diagnose")
    checks.fractions(headline_acc=headline, frozen_baseline_acc=frozen)
    network, indexed_batches = checks.network(model, sites), checks.batches(eval_batches)
    loss = checks.loss(network, loss)
    indexed_batches = {index: tuple(map(usable_for_gradients, pair)) for index, pair in indexed_batches.items()}
    for index, (x, y) in indexed_batches.items():
        checks.batch(network, x, y, (f"eval_batches[{index}] x", f"eval_batches[{index}] y"), loss=loss)
    checks.classes([y for _, y in indexed_batches.values()], "eval_batches")
    return checks, network, list(indexed_batches.values()), loss


def _applicable(edition: Edition, frozen: float | None) -> tuple[Edition, list[str]]:
    """Return the edition without the rules that need a missing frozen accuracy.

    The second value is a list with one remark per removed rule.
    """
    if frozen is not None:
        return edition, []
    skipped_rules = [rule for rule in edition.rules if rule.reference and rule.without_reference == "skipped"]
    applicable_rules = tuple(rule for rule in edition.rules if rule not in skipped_rules)
    remarks = [
        f"rule {rule.code} ({rule.title}) was skipped, because no frozen accuracy was given" for rule in skipped_rules
    ]
    return dataclasses.replace(edition, rules=applicable_rules), remarks


def _measured(
    network: nn.Module, batches: Sequence[Batch], headline: float | None, loss: Loss
) -> tuple[Measurements, int, str]:
    """Return the metrics, the site ⌊L/2⌋ of the stability over batches, and why ‖g_L‖ is exactly 0, or ""."""
    first, check = checked(network, *batches[0], "diagnose", user_task(batches[0][1], loss))
    layer = (first.sites - 1) // 2
    is_wrong = bool(check and check.objection)
    stability = Reading(None, check.objection) if is_wrong else _stability(network, batches, first, layer, loss)
    scalars = {ACCURACY.name: accuracy(headline), STABILITY: stability}
    return measured(first, scalars, check), layer, first.zero_reason(-1)


def _stability(network: nn.Module, batches: Sequence[Batch], first: Observation, layer: int, loss: Loss) -> Reading:
    if len(batches) < 2:
        return Reading(None, "the stability across batches needs at least 2 batches, found 1")
    observations = (
        observed(network, *batch, "diagnose", double=False, task=user_task(batch[1], loss)) for batch in batches[1:]
    )
    mean_gradients = [observation.gradients[layer].double().mean(dim=0) for observation in (first, *observations)]
    return mean_pairwise_cosine(torch.stack(mean_gradients))  # (batches, features)


def _plain(value: float | None) -> float | None:
    """Return a Python float, because JSON does not accept NumPy numbers."""
    return None if value is None else float(value)


def _values(measurements: Measurements, name: str) -> tuple[float | None, ...]:
    return tuple(reading.value for reading in measurements.sites[name])


def _remarks(batches: Sequence[Batch], measurements: Measurements, audit: RunAudit) -> list[str]:
    stability = measurements.scalars[STABILITY]
    return [*_of_batches(batches, stability), *_of_sites(measurements), *_of_findings(audit, stability)]


def _of_batches(batches: Sequence[Batch], stability: Reading) -> list[str]:
    remarks = []
    if stability.value is None:
        remarks.append(f"cross_batch_stability is N/A: {stability.reason}")
    elif len(batches) < BATCHES:
        remarks.append(
            f"cross_batch_stability was computed from {len(batches)} batches; the published value uses {BATCHES} batches"
        )
    uniform = [str(index) for index, (_, y) in enumerate(batches) if len(y.unique()) == 1]
    if uniform:
        remarks.append(
            f"batches with only one class: {', '.join(uniform)}; shuffle the samples, because otherwise batches differ by class"
        )
    return remarks


def _of_sites(measurements: Measurements) -> list[str]:
    names = {"h_norm": "residual_norms", "g_norm_mean_ce": "bp_grad_norms"}
    return [
        f"{names[quantity]}[{site}] is N/A: {reading.reason}"
        for quantity in names
        for site, reading in enumerate(measurements.sites[quantity])
        if reading.value is None
    ]


def _of_findings(audit: RunAudit, stability: Reading) -> list[str]:
    """Return the sentence of each finding that is not a pass and is not yet in the remarks."""
    return [
        finding.sentence
        for finding in audit.findings
        if finding.outcome != "pass" and (not stability.reason or finding.observed.reason != stability.reason)
    ]
