"""Data classes that the modules of the package exchange.

A RunSpec specifies a run, and a RunRecord contains what the run measured. Rules judge a RunRecord and return Findings. An
AuditReport contains the RunRecords and the Findings. All records are frozen, and a conversion to JSON and back does not change
them. Records contain no NaN: a missing number is a Reading with a reason.
"""
# ruff: noqa: F401 - the imported names are the names of this package

from fa_registry.records.audits import (
    EXCLUSION_KINDS,
    OUTCOMES,
    AuditReport,
    ControlMargin,
    EditionReference,
    Exclusion,
    Finding,
    Flag,
    FurtherLimit,
    GuardReading,
    Inapplicable,
    Judgement,
    OtherRun,
    Replay,
    ReplayedRun,
    RuleDifference,
    RunAudit,
    SecondOpinion,
    SelectionSummary,
    Side,
    UndecidedCause,
    Verdict,
    Waiver,
)
from fa_registry.records.readings import (
    NOT_FINITE,
    NOT_ITS_GRADIENT,
    WRONG_GRADIENT,
    Reading,
    Reason,
    Series,
    not_finite,
    unchecked_gradient,
    wrong_gradient,
)
from fa_registry.records.reproduction import (
    REPRODUCTION_OUTCOMES,
    FigureVerdict,
    Margin,
    MeasuredFigure,
    Published,
    PublishedFigure,
    Reference,
    ReferenceSetting,
    Reproduction,
)
from fa_registry.records.runs import (
    BIGRAM,
    CHANCE,
    CHECK_OUTCOMES,
    CLASSES,
    CONFORMANCE_STATES,
    CREDIT_CHECK,
    FROZEN_LONG,
    LONGER,
    NETWORK_CHECK,
    NORMALISED,
    REPETITIONS,
    REPLACED,
    RESIDUAL,
    SHARED_SAMPLES,
    STREAM,
    TASK_CHECK,
    TRAINING_CHECK,
    Check,
    Conformance,
    FigureDifference,
    Integrity,
    Measurements,
    Option,
    Recipe,
    RunRecord,
    RunSpec,
    Scalar,
    SiteSeries,
    objection_in,
)
from fa_registry.records.sample_scores import SampleScores
