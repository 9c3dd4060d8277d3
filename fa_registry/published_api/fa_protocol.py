"""FAProtocol: the published code's entry point, kept by name so that its users only change an import."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from torch import Tensor, nn

from fa_registry.errors import EvidenceWarning
from fa_registry.protocol.operators import margin_pp
from fa_registry.protocol.rules import STRICT, Edition, load_edition
from fa_registry.protocol.verdict import PROVISIONAL, verdict
from fa_registry.published_api.one_batch import accuracy, accuracy_of, checked, judged, measured
from fa_registry.records import Finding, RunAudit, Verdict
from fa_registry.training.input_validation import Checks

EDITION = "2026-05"
FORMATS = {
    "D1_scale_growth": "max growth {max_growth:.4g} (limit {threshold:g})",
    "D2_ref_validity": "‖g_L‖ {g_L:.4g} (floor {floor:g})",
    "D3_depth_utility": "margin {margin_pp:+.2f} pp over frozen (required {threshold_pp:g})",
}
ZERO = (
    "‖g_L‖ is exactly zero: nothing of the loss reaches the states, which is another defect than a small reference; "
    "D2 fires as published, and no Γ exists"
)


class FAProtocol:
    """Scale stability D1, reference validity D2, depth utility D3 of one trained model, by edition 2026-05.

    model: any nn.Module with `.blocks`, `.out_head` and optional `.out_ln` whose blocks return their residual branch; anything
    else through `fa_registry.adapt`. x_eval (N, …), y_eval (N,): the eval batch. ‖g‖ is of the *mean* cross entropy over this
    batch, as published, so D2 depends on N; d2_eps · d2_factor is its floor. d3_margin_pp: percentage points; the report gives
    margin and margin_threshold as fractions, as published. Norms are lower medians over samples (torch.median), as published;
    the registry's own are midpoints, so that with an even N the two differ in the digits between the two middle samples.
    strict: judge as the published code does, FAIL if any rule fires; by default, as its README and the paper say, FAIL if
    (D1 and D2) or D3, and WARN if D1 or D2 fires alone.

    One sample, or labels of one class, are measured with an EvidenceWarning. InvalidFields names all that is wrong otherwise.
    Source: arXiv 2606.21126.
    """

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
        strict: bool = False,
    ):
        checks = Checks("FAProtocol")
        network = checks.network(model)
        checks.batch(network, x_eval, y_eval, ("x_eval", "y_eval"))
        checks.classes([y_eval], "y_eval")
        checks.limits(d1_threshold=d1_threshold, d2_eps=d2_eps, d2_factor=d2_factor, d3_margin_pp=d3_margin_pp)
        checks.switches(strict=strict)
        checks.finish()
        self.network, self.x_eval, self.y_eval = network, x_eval, y_eval
        limits = {"D1": d1_threshold, "D2": d2_eps * d2_factor, "D3": d3_margin_pp}
        by = STRICT if strict else EDITION
        self.edition: Edition = load_edition(by, {name: float(limit) for name, limit in limits.items()})

    def run(self, frozen_baseline_acc: float | None = None, test_acc: float | None = None) -> dict[str, Any]:
        """Measure and judge. Accuracies are fractions of a whole test set, and count as you state them.

        Returns the report with the published keys: verdict, test_acc, diagnostics (one table a rule; norms of sites 0..L, growth of
        blocks 1..L, `margin` a fraction), remarks, provisional.

        test_acc None: the accuracy of the eval batch stands in, with an EvidenceWarning; the report is `provisional` then, and
        its verdict at most WARN(D3 provisional). frozen_baseline_acc None: D3 is None and nothing is PASS.
        Whatever is None in the report has its reason among its `remarks`. InvalidFields for what is no fraction.
        """
        checks = Checks("FAProtocol")
        checks.fractions(test_acc=test_acc, frozen_baseline_acc=frozen_baseline_acc)
        checks.finish()
        provisional = test_acc is None
        if provisional:
            test_acc = accuracy_of(self.network, self.x_eval, self.y_eval)
            warnings.warn(f"FAProtocol: {self._stand_in()}", EvidenceWarning, stacklevel=2)
        observation, objection = checked(self.network, self.x_eval, self.y_eval, "FAProtocol")
        measurements = measured(observation, {"accuracy": accuracy(test_acc)}, objection)
        audit = judged(measurements, frozen_baseline_acc, self.edition)
        report = self._as_published(audit, frozen_baseline_acc, test_acc)
        if not provisional:
            return report
        remarks = [*report["remarks"], self._stand_in()]
        return {
            **report,
            "verdict": _marked(audit, self.edition).label,
            "remarks": remarks,
            "provisional": True,
        }

    @staticmethod
    def summary(report: dict[str, Any]) -> str:
        """The report as four lines of text, and one more for everything that is missing. Margins in percentage points.

        report: what `run` returned, a JSON round trip later too. Raises KeyError for a table that is none.
        """
        lines = [f"verdict: {report['verdict']}"]
        for name, text in FORMATS.items():
            figures = report["diagnostics"][name]
            state = {True: "FIRES", False: "ok", None: "N/A"}[figures["fires"]]
            known = all(figures[key] is not None for key in ("max_growth", "g_L", "margin") if key in figures)
            lines.append(f"{name}: {state}" + (f", {text.format(**figures, **_in_pp(figures))}" if known else ""))
        return "\n".join([*lines, *(f"note: {remark}" for remark in report.get("remarks", ()))])

    def _stand_in(self) -> str:
        return (
            f"test_acc: none was given: the accuracy of the eval batch, {len(self.y_eval)} samples, stands in for that of "
            "the test set, and the verdict is provisional"
        )

    def _as_published(self, audit: RunAudit, frozen_acc: float | None, test_acc: float) -> dict[str, Any]:
        findings = {finding.rule: finding for finding in audit.findings}
        limits = {rule.code: rule.threshold for rule in self.edition.rules}
        sites = audit.record.measurements.sites
        # rounded as the rule rounds it, or margin < margin_threshold could disagree with `fires` on the limit itself:
        # tests/api/test_fa_protocol.py
        margin = None if frozen_acc is None else margin_pp(test_acc, frozen_acc) / 100
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
                    "fires": _fires(findings["D3"]),
                },
            },
            "remarks": [
                finding.sentence
                for finding in audit.findings
                if _fires(finding) is None or finding.observed.value is None
            ]
            + ([ZERO] if findings["D2"].observed.value == 0 else []),
            "provisional": False,
        }


def _fires(finding: Finding) -> bool | None:
    return {"fail": True, "pass": False}.get(finding.outcome)


def _marked(audit: RunAudit, edition: Edition) -> Verdict:
    """The verdict with what compares accuracies marked provisional: it passes nothing, and where it fires it says so."""
    compared = {rule.code for rule in edition.rules if rule.reference}
    outcomes = {"pass": "warn", "fail": "fail"}
    findings = [
        dataclasses.replace(finding, outcome=outcomes[finding.outcome], state=PROVISIONAL)
        if finding.rule in compared and finding.outcome in outcomes
        else finding
        for finding in audit.findings
    ]
    return verdict(audit.record, findings, edition)


def _in_pp(figures: dict[str, Any]) -> dict[str, float]:
    """The figures of D3 in the unit of the words; nothing for the others."""
    if "margin" not in figures:
        return {}
    return {"margin_pp": 100 * figures["margin"], "threshold_pp": 100 * figures["margin_threshold"]}
