"""FAProtocol: the published code's entry point, kept by name so that its users only change an import."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.architectures import Adapted, adapt
from fa_registry.architectures.base import Network
from fa_registry.diagnostics import CATALOG, observe
from fa_registry.errors import InvalidFields
from fa_registry.protocol.engine import judge
from fa_registry.protocol.operators import margin_pp
from fa_registry.protocol.rules import Edition, load_edition
from fa_registry.records import Finding, Integrity, Measurements, Reading, RunAudit, RunRecord, RunSpec

EDITION = "2026-05"
FORMATS = {
    "D1_scale_growth": "max growth {max_growth:.4g} (limit {threshold:g})",
    "D2_ref_validity": "‖g_L‖ {g_L:.4g} (floor {floor:g})",
    "D3_depth_utility": "margin {margin:+.2f} pp over frozen (required {margin_threshold:g})",
}


class FAProtocol:
    """Scale stability D1, reference validity D2, depth utility D3 of one trained model, by edition 2026-05.

    model: any nn.Module with `.blocks`, `.out_head` and optional `.out_ln` whose blocks return their residual branch; anything
    else through `fa_registry.adapt`. x_eval (N, …), y_eval (N,): the eval batch. ‖g‖ is of the *mean* cross entropy over this
    batch, as published, so D2 depends on N; d2_eps · d2_factor is its floor. Source: arXiv 2606.21126.
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
    ):
        _check_batch(model, x_eval, y_eval)
        self.network = model if isinstance(model, (Network, Adapted)) else adapt(model)
        self.x_eval, self.y_eval = x_eval, y_eval
        limits = {"D1": d1_threshold, "D2": d2_eps * d2_factor, "D3": d3_margin_pp}
        edition = load_edition(EDITION)
        rules = tuple(dataclasses.replace(rule, threshold=limits[rule.code]) for rule in edition.rules)
        self.edition: Edition = dataclasses.replace(edition, rules=rules)

    def run(self, frozen_baseline_acc: float | None = None, test_acc: float | None = None) -> dict[str, Any]:
        """Measure and judge. Accuracies are fractions of a whole test set; without both, D3 is None and nothing is PASS."""
        _check_accuracies(test_acc=test_acc, frozen_baseline_acc=frozen_baseline_acc)
        measurements = self._measure(test_acc)
        frozen = _record(_accuracy_only(frozen_baseline_acc), "frozen") if frozen_baseline_acc is not None else None
        audit = judge(_record(measurements, "none"), frozen, self.edition)
        return self._as_published(audit, frozen_baseline_acc, test_acc)

    @staticmethod
    def summary(report: dict[str, Any]) -> str:
        """The report as four lines of text."""
        lines = [f"verdict: {report['verdict']}"]
        for name, words in FORMATS.items():
            figures = report["diagnostics"][name]
            state = {True: "FIRES", False: "ok", None: "N/A"}[figures["fires"]]
            known = all(figures[key] is not None for key in ("max_growth", "g_L", "margin") if key in figures)
            lines.append(f"{name}: {state}" + (f", {words.format(**figures)}" if known else ""))
        return "\n".join(lines)

    def _measure(self, test_acc: float | None) -> Measurements:
        observation = observe(self.network, self.x_eval, self.y_eval)
        sites: dict[str, tuple[Reading, ...]] = {}
        scalars: dict[str, Reading] = {}
        for name in ("h_norm", "g_norm"):
            measured = CATALOG.get(name).measure(observation)
            sites |= measured.sites
            scalars |= measured.scalars
        count = len(self.y_eval)
        sites["g_norm_mean_ce"] = tuple(
            Reading(reading.value / count) if reading.value is not None else reading for reading in sites["g_norm"]
        )
        return Measurements(sites, {**scalars, **_accuracy_only(test_acc).scalars})

    def _as_published(self, audit: RunAudit, frozen_acc: float | None, test_acc: float | None) -> dict[str, Any]:
        findings = {finding.rule: finding for finding in audit.findings}
        limits = {rule.code: rule.threshold for rule in self.edition.rules}
        sites = audit.record.measurements.sites
        margin = margin_pp(test_acc, frozen_acc) if test_acc is not None and frozen_acc is not None else None
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
                    "margin_threshold": limits["D3"],
                    "fires": _fires(findings["D3"]),
                },
            },
        }


def _fires(finding: Finding) -> bool | None:
    return {"fail": True, "pass": False}.get(finding.outcome)


def _accuracy_only(accuracy: float | None) -> Measurements:
    reading = Reading(accuracy) if accuracy is not None else Reading(None, "no test accuracy was given")
    return Measurements({}, {"accuracy": reading})


def _record(measurements: Measurements, control: str) -> RunRecord:
    """A record around bare measurements, so that the one engine judges them."""
    spec = RunSpec("unknown", "unknown", "unknown", seed=0, epochs=0, control=control)
    return RunRecord(
        "", "unknown", "", "complete", spec, measurements, {}, Integrity("unverifiable", ("not a registry run",))
    )


def _check_accuracies(**accuracies: float | None) -> None:
    problems = [
        f"{name}: expected a fraction of the test set in 0..1, found {value:g}"
        for name, value in accuracies.items()
        if value is not None and not 0 <= value <= 1  # nan is not in 0..1 either
    ]
    if problems:
        raise InvalidFields("FAProtocol", problems)


def _check_batch(model: nn.Module, x_eval: Tensor, y_eval: Tensor) -> None:
    problems = []
    if y_eval.dim() != 1 or y_eval.dtype != torch.int64:
        problems.append(
            f"y_eval: expected int64 labels of shape (N,), found {y_eval.dtype} of shape {tuple(y_eval.shape)}"
        )
    if len(x_eval) != len(y_eval) or len(y_eval) == 0:
        problems.append(f"x_eval: expected one row a label, found {len(x_eval)} rows for {len(y_eval)} labels")
    weights = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    if x_eval.is_floating_point() and weights - {x_eval.dtype}:
        found = ", ".join(sorted(str(dtype) for dtype in weights))
        problems.append(f"x_eval: expected the dtype of the model's parameters ({found}), found {x_eval.dtype}")
    if problems:
        raise InvalidFields("FAProtocol", problems)
