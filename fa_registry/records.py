"""The records that travel through the house: RunSpec → RunRecord → Finding → AuditReport.

All are frozen, go JSON → object → JSON unchanged, and hold no NaN: a number that does not exist is a Reading
with the reason why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fa_registry import jsonio

SCHEMA = 1
NOT_FINITE = "not finite"  # a reason that starts so says: it was computed, and came out as inf or nan

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Reading:
    """One measured number, or None with the reason why there is none. In JSON: the number, or {"na": reason}."""

    value: float | None = None
    reason: str = ""

    def __post_init__(self):
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"a Reading holds no {self.value}; use Reading.of")
        if (self.value is None) != bool(self.reason):
            raise ValueError("a Reading has either a value or a reason")

    @classmethod
    def of(cls, value: float) -> Reading:
        """The reading of any computed float; inf and nan are kept as N/A with that very reason."""
        number = float(value)
        return cls(number) if math.isfinite(number) else cls(None, f"{NOT_FINITE} ({number})")

    @property
    def not_finite(self) -> bool:
        return self.reason.startswith(NOT_FINITE)

    def __json__(self) -> Any:
        return self.value if self.value is not None else {"na": self.reason}

    @classmethod
    def __from_json__(cls, value: Any) -> Reading:
        return cls(None, value["na"]) if isinstance(value, Mapping) else cls(float(value))


@dataclass(frozen=True)
class Recipe:
    """How any method is optimised; the defaults are the paper's (settings of arXiv 2606.21126)."""

    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    schedule: str = "cosine"
    batch_size: int = 128
    credit_norm: str = "rms"


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run's result. Its digest is the run's identity."""

    method: str
    architecture: str
    dataset: str
    seed: int
    epochs: int
    method_options: Mapping[str, Scalar] = field(default_factory=dict)
    architecture_options: Mapping[str, Scalar] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    penalty: float = 0.0
    control: str = "none"
    precision: str = "fp32"
    device_class: str = "cpu"
    site_convention: str = "block_output"

    @property
    def identity(self) -> str:
        """SHA-256 of the canonical JSON: equal specs are the same run."""
        return jsonio.digest_of(self)

    @property
    def setting(self) -> RunSpec:
        """This spec with method, penalty, control and seed blanked: runs of one setting are comparable."""
        recipe = dataclasses.replace(self.recipe, credit_norm="")
        return dataclasses.replace(
            self, method="", method_options={}, penalty=0.0, control="none", seed=0, recipe=recipe
        )

    @property
    def method_label(self) -> str:
        """`dfa`, `dfa+pen λ=0.01`, or the control's name."""
        base = self.method if self.control == "none" else self.control
        return f"{base}+pen λ={self.penalty:g}" if self.penalty else base


@dataclass(frozen=True)
class Measurements:
    """What was measured on the fixed eval batch at one moment.

    sites: quantity → one Reading a site (index = site, 0..L). scalars: quantity → Reading.
    conventions: how it was measured (eval batch size and digest, vector convention, threads).
    """

    sites: Mapping[str, tuple[Reading, ...]]
    scalars: Mapping[str, Reading]
    conventions: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Integrity:
    """Whether a run's logged figures stand: verified, mismatch, unverifiable, or trusted (not recomputed)."""

    state: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRecord:
    """One run as the audit sees it. status: complete, diverged or failed. setting: readable name of what it is compared within.

    trajectory: headline quantity (h_L, g_L, growth_max, accuracy, …) → one Reading an epoch (index = epoch, 0 = init).
    digests: artifact path → SHA-256.
    """

    run_id: str
    name: str
    setting: str
    status: str
    spec: RunSpec
    measurements: Measurements
    trajectory: Mapping[str, tuple[Reading, ...]]
    integrity: Integrity
    digests: Mapping[str, str] = field(default_factory=dict)
    feedback: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One rule's judgement of one run, the limit travelling with it.

    outcome: pass, fail (it fires), error, not_applicable, skipped or waived.
    """

    rule: str
    title: str
    outcome: str
    quantity: str
    observed: Reading
    required: str
    sentence: str
    run_id: str
    threshold: float | None = None
    site: int | None = None
    reference_run_id: str = ""
    first_fire: int | None = None


@dataclass(frozen=True)
class Verdict:
    """outcome: pass, warn, fail, incomplete or control; label: what people read, e.g. `FAIL(D1+D3)`."""

    outcome: str
    label: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunAudit:
    record: RunRecord
    findings: tuple[Finding, ...]
    verdict: Verdict
    frozen_run_id: str = ""


@dataclass(frozen=True)
class Exclusion:
    """A run that was selected but cannot be judged, and why; shown, never dropped in silence.

    failure: the traceback of a broken run.
    """

    run_id: str
    name: str
    reason: str
    failure: str = ""


@dataclass(frozen=True)
class EditionReference:
    """Which rules judged: the edition's name, the SHA-256 of its file, and any overridden threshold."""

    name: str
    title: str
    source: str
    digest: str
    overrides: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditReport:
    """A whole audit: what was selected, by which edition, run by run. Rendering it needs nothing else."""

    title: str
    selection: str
    edition: EditionReference
    runs: tuple[RunAudit, ...]
    excluded: tuple[Exclusion, ...] = ()
    remarks: tuple[str, ...] = ()
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    schema: int = SCHEMA
