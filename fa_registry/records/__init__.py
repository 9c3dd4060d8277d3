"""The records that travel through the house: RunSpec → RunRecord → Finding → AuditReport.

All are frozen, go JSON → object → JSON unchanged, and hold no NaN: a number that does not exist is a Reading
with the reason why.
"""

from fa_registry.records.audits import (
    EXCLUSION_KINDS,
    OUTCOMES,
    AuditReport,
    Choice,
    EditionReference,
    Exclusion,
    Finding,
    Judgement,
    RunAudit,
    SecondOpinion,
    Verdict,
    Waiver,
)
from fa_registry.records.options import Option
from fa_registry.records.readings import NOT_FINITE, Reading, Series
from fa_registry.records.reproduction import (
    REPRODUCTION_OUTCOMES,
    FigureVerdict,
    Margin,
    Measured,
    Published,
    PublishedFigure,
    Reference,
    ReferenceSetting,
    Reproduction,
)
from fa_registry.records.runs import (
    CHECK_OUTCOMES,
    CONFORMANCE_STATES,
    SCHEMA,
    Check,
    Conformance,
    Integrity,
    Measurements,
    Recipe,
    RunRecord,
    RunSpec,
    Scalar,
    SiteSeries,
)

__all__ = [
    "CHECK_OUTCOMES",
    "CONFORMANCE_STATES",
    "EXCLUSION_KINDS",
    "NOT_FINITE",
    "OUTCOMES",
    "REPRODUCTION_OUTCOMES",
    "SCHEMA",
    "AuditReport",
    "Check",
    "Choice",
    "Conformance",
    "EditionReference",
    "Exclusion",
    "FigureVerdict",
    "Finding",
    "Integrity",
    "Judgement",
    "Margin",
    "Measured",
    "Measurements",
    "Option",
    "Published",
    "PublishedFigure",
    "Reading",
    "Recipe",
    "Reference",
    "ReferenceSetting",
    "Reproduction",
    "RunAudit",
    "RunRecord",
    "RunSpec",
    "Scalar",
    "SecondOpinion",
    "Series",
    "SiteSeries",
    "Verdict",
    "Waiver",
]
