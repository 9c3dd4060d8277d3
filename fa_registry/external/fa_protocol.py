"""The published class FAProtocol.

To use this class instead of the published code, a program has to change only one import.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from fa_registry.errors import EvidenceWarning
from fa_registry.external.one_batch import accuracy, accuracy_of, checked, judged, measured
from fa_registry.metrics import ACCURACY
from fa_registry.network_mode import gradients_enabled, usable_for_gradients
from fa_registry.protocol.operators import margin_pp
from fa_registry.protocol.rules import STRICT, Edition, load_edition
from fa_registry.protocol.verdict import PROVISIONAL, verdict
from fa_registry.records import Finding, RunAudit, Verdict
from fa_registry.tasks._user_loss import Loss, loss_name, user_task
from fa_registry.training.forward_traits import remarks_on
from fa_registry.training.input_validation import Checks

EDITION = "2026-05"
FORMATS = {
    "D1_scale_growth": "max growth {max_growth:.4g} in block {block} (limit {threshold:g})",
    "D2_ref_validity": "‖g_L‖ {g_L:.4g} (floor {floor:g})",
    "D3_depth_utility": "margin {margin_pp:+.2f} pp over the frozen control (required {threshold_pp:g})",
}
ZERO = "An exact zero is not the defect of a small reference gradient. D2 fires, as in the published code, and Γ is not defined"
NO_CONTROL = "no frozen accuracy was given, so D3 was not judged: as in the published code, D1 and D2 alone decide"


class ProtocolReport(dict[str, Any]):
    """Report of `FAProtocol.run`: a dictionary whose `repr` is one line and whose `print` is the summary."""

    def __repr__(self) -> str:
        return f"ProtocolReport(verdict={self.get('verdict')!r}, remarks: {len(self.get('remarks', ()))})"

    def __str__(self) -> str:
        return FAProtocol.summary(self)


class FAProtocol:
    """Judge one model by the rules D1, D2 and D3 of edition 2026-05.

    D1 is scale stability, D2 is reference validity, and D3 is depth utility. As published, norms are lower medians over
    samples (torch.median). Other medians in this package are the midpoint of the two middle values. For an even N, the two
    kinds of median differ by at most the gap between the two middle samples. The constructor emits an EvidenceWarning if
    there is only one sample, or if all labels are of one class.

    Args:
        model: any nn.Module with `.blocks`, `.out_head` and optionally `.out_ln`. Each block must return its residual branch.
            Use `fa_registry.adapt` for other models.
        x_eval: input of the evaluation batch, (N, …).
        y_eval: labels of the evaluation batch, (N,), or tokens (N, T); with `loss` also values in the shape of the outputs.
        d1_threshold: largest allowed growth of ‖h_l‖ from block to block.
        d2_eps: d2_eps · d2_factor is the smallest allowed ‖g_L‖ (D2). As published, ‖g_L‖ is computed from the *mean* cross
            entropy over the evaluation batch, so D2 depends on N.
        d2_factor: see d2_eps.
        d3_margin_pp: required accuracy gain over the frozen baseline, in percentage points. In the report, `margin` and
            `margin_threshold` are fractions, as published.
        sites: as for `adapt`; ignored for a result of `adapt`.
        strict: if true, the verdict is FAIL if any rule fires, as in the published code. By default the verdict is FAIL if
            (D1 and D2) or D3 fires, and WARN if only D1 or only D2 fires, as in the README of that code and in the paper. If no
            frozen accuracy is given, D1 and D2 alone decide a strict verdict, which may be PASS, as in the published code.
        loss: loss that trains the model, as for `adapt`. The default is the loss that `adapt` received, or the cross entropy of
            logits.

    Raises:
        InvalidFields: lists all wrong arguments.

    Source: arXiv 2606.21126.
    """

    @gradients_enabled()
    def __init__(
        self,
        model: nn.Module,
        x_eval: Tensor,
        y_eval: Tensor,
        d1_threshold: float = 50.0,
        d2_eps: float = 1e-8,
        d2_factor: float = 10.0,
        d3_margin_pp: float = 2.0,
        *,
        sites: Sequence[str] = (),
        strict: bool = False,
        loss: Loss = "",
    ):
        checks = Checks("FAProtocol")
        network = checks.network(model, sites)
        loss = checks.loss(network, loss)
        x_eval, y_eval = map(usable_for_gradients, (x_eval, y_eval))
        checks.batch(network, x_eval, y_eval, ("x_eval", "y_eval"), loss=loss)
        checks.classes([y_eval], "y_eval")
        checks.limits(d1_threshold=d1_threshold, d2_eps=d2_eps, d2_factor=d2_factor, d3_margin_pp=d3_margin_pp)
        checks.switches(strict=strict)
        checks.finish()
        self.network, self.x_eval, self.y_eval, self.traits = network, x_eval, y_eval, checks.traits
        self.loss, self._task, self.strict = loss_name(loss), user_task(y_eval, loss), strict
        limits = {"D1": d1_threshold, "D2": d2_eps * d2_factor, "D3": d3_margin_pp}
        edition_name = STRICT if strict else EDITION
        self.edition: Edition = load_edition(edition_name, {name: float(limit) for name, limit in limits.items()})

    def run(self, frozen_baseline_acc: float | None = None, test_acc: float | None = None) -> ProtocolReport:
        """Measure the model on the evaluation batch and judge the results.

        Args:
            frozen_baseline_acc: accuracy of the frozen baseline on the whole test set, as a fraction. If it is None, the result
                of D3 is None and the verdict is never PASS, unless the protocol is strict.
            test_acc: accuracy on the whole test set, as a fraction. If it is None, the accuracy on the evaluation batch is used
                and an EvidenceWarning is emitted. In this case the report is `provisional`, and the verdict is at best
                WARN(D3 provisional).

        Returns:
            The report as a dictionary with the keys of the published code: verdict, test_acc, diagnostics, remarks, provisional;
            and with two more: loss, the name of the loss, and reference_check, the relative deviations of the gradient from finite
            differences at sites 0..L and whether one is too large. It is None if finite differences gave the gradient.
            `diagnostics` contains one dictionary per rule, with norms of sites 0..L, growth of blocks 1..L, and `margin` as a
            fraction. If a value is None, `remarks` contains the reason.

        Raises:
            InvalidFields: an accuracy is not a fraction.
        """
        checks = Checks("FAProtocol")
        checks.fractions(test_acc=test_acc, frozen_baseline_acc=frozen_baseline_acc)
        checks.finish()
        provisional = test_acc is None
        if provisional:
            with gradients_enabled():
                test_acc = accuracy_of(self.network, self.x_eval, self.y_eval)
        provisional = provisional and test_acc is not None
        if provisional:
            warnings.warn(f"FAProtocol: {self._stand_in()}", EvidenceWarning, stacklevel=2)
        with gradients_enabled():
            observation, check = checked(self.network, self.x_eval, self.y_eval, "FAProtocol", self._task)
        measurements = measured(observation, {ACCURACY.name: accuracy(test_acc)}, check)
        edition = self.edition
        if self.strict and frozen_baseline_acc is None:  # the published code then judges by D1 and D2 alone
            edition = dataclasses.replace(edition, rules=tuple(rule for rule in edition.rules if not rule.reference))
        audit = judged(measurements, frozen_baseline_acc, edition)
        report = self._as_published(audit, frozen_baseline_acc, test_acc)
        report["reference_check"] = check and {
            "deviations": [reading.value for reading in check.deviations],
            "fails": bool(check.objection),
        }
        report["remarks"] += [f"‖g_L‖: {zero}. {ZERO}"] if (zero := observation.zero_reason(-1)) else []
        if provisional:
            report["verdict"] = _marked(audit, edition).label
            report["remarks"] = [*report["remarks"], self._stand_in()]
            report["provisional"] = True
        return ProtocolReport(report)

    @staticmethod
    def summary(report: dict[str, Any]) -> str:
        """Return a report as text: five lines, and one line per remark.

        Margins are in percentage points.

        Args:
            report: result of `run`. A report that was converted to JSON and back is accepted too.

        Raises:
            KeyError: the report lacks a key.
        """
        lines = [f"verdict: {report['verdict']}"]
        for name, text in FORMATS.items():
            values = report["diagnostics"][name]
            state = {True: "FIRES", False: "ok", None: "N/A"}[values["fires"]]
            has_values = all(values[key] is not None for key in ("max_growth", "g_L", "margin") if key in values)
            lines.append(f"{name}: {state}" + (f", {text.format(**values, **_shown(values))}" if has_values else ""))
        notes = (f"note: {remark}" for remark in report.get("remarks", ()))
        return "\n".join([*lines, _check_line(report["reference_check"]), *notes])

    def _stand_in(self) -> str:
        return (
            f"test_acc was not given, so the accuracy of the eval batch ({len(self.y_eval)} samples) is used instead of the "
            "accuracy of the test set, and the verdict is provisional"
        )

    def _as_published(self, audit: RunAudit, frozen_acc: float | None, test_acc: float | None) -> dict[str, Any]:
        findings = {finding.rule: finding for finding in audit.findings}
        limits = {rule.code: rule.threshold for rule in self.edition.rules}
        sites = audit.record.measurements.sites
        # The margin is rounded as in the rule. Otherwise margin < margin_threshold could differ from `fires` at the limit.
        margin = None if frozen_acc is None or test_acc is None else margin_pp(test_acc, frozen_acc) / 100
        return {
            "verdict": audit.verdict.label,
            "test_acc": test_acc,
            "diagnostics": {
                "D1_scale_growth": {
                    "max_growth": findings["D1"].observed.value,
                    "per_block_growth": [reading.value for reading in sites["growth"][1:]],
                    "hidden_norms": [reading.value for reading in sites["h_norm"]],
                    "threshold": limits["D1"],
                    "fires": _fires(findings["D1"]),
                },
                "D2_ref_validity": {
                    "g_L": findings["D2"].observed.value,
                    "bp_grad_norms": [reading.value for reading in sites["g_norm_mean_ce"]],
                    "floor": limits["D2"],
                    "fires": _fires(findings["D2"]),
                },
                "D3_depth_utility": {
                    "test_acc": test_acc,
                    "frozen_baseline_acc": frozen_acc,
                    "margin": margin,
                    "margin_threshold": limits["D3"] / 100,
                    "fires": _fires(findings["D3"]) if "D3" in findings else None,
                },
            },
            "remarks": [
                finding.sentence
                for finding in audit.findings
                if _fires(finding) is None or finding.observed.value is None
            ]
            + ([] if "D3" in findings else [NO_CONTROL])
            + list(remarks_on(self.network, self.traits)),
            "provisional": False,
            "loss": self.loss,
        }


def _fires(finding: Finding) -> bool | None:
    return {"fail": True, "pass": False}.get(finding.outcome)


def _marked(audit: RunAudit, edition: Edition) -> Verdict:
    """Return the verdict with D3 marked as provisional, so a pass becomes a warning."""
    comparison_rules = {rule.code for rule in edition.rules if rule.reference}
    outcomes = {"pass": "warn", "fail": "fail"}
    findings = [
        dataclasses.replace(finding, outcome=outcomes[finding.outcome], state=PROVISIONAL)
        if finding.rule in comparison_rules and finding.outcome in outcomes
        else finding
        for finding in audit.findings
    ]
    return verdict(audit.record, findings, edition)


def _check_line(check: dict[str, Any] | None) -> str:
    """Return the line about the check of the reference gradient by finite differences of the loss."""
    deviations = [value for value in check["deviations"] if value is not None] if check else []
    if not check:
        result = "none, because finite differences of the loss gave the gradient"
    elif check["fails"]:
        result = "FAILS, so D2 is not judged"
    elif deviations:
        result = f"ok, the gradient differs from finite differences by at most {max(deviations):.2g} of their norm"
    else:
        result = "none, because no difference of the loss is finite"
    return f"reference check: {result}"


def _shown(values: dict[str, Any]) -> dict[str, float]:
    """Return values that only the line of a rule has: the block of D1, and the margins of D3 in pp."""
    if "max_growth" in values:
        return {"block": 1 + values["per_block_growth"].index(values["max_growth"])}
    if "margin" in values:
        return {"margin_pp": 100 * values["margin"], "threshold_pp": 100 * values["margin_threshold"]}
    return {}
