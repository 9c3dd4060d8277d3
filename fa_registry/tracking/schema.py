"""Names in the store: tags, metric keys, artifact paths. One table, read by writers and readers alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fa_registry.records import SCHEMA, Measurements, Reading, RunSpec

EXPERIMENT = "fa_registry"
MAX_EDITION = 200  # characters of an edition's name in a tag; MLflow's keys end at 250

TAG_SCHEMA = "fa.schema"
TAG_SPEC = "fa.spec"
TAG_STUDY = "fa.study"
TAG_SETTING = "fa.setting"
TAG_TWIN = "fa.twin"  # on a study's own run: what makes it another than its study.toml, {"data": …, "scale": …}
TAG_STATUS = "fa.status"  # running | complete | diverged | stopped_early | failed: MLflow's FINISHED can be wrong
TAG_KIND = "fa.kind"  # run | study | audit
TAG_ARTIFACTS = "fa.artifacts"  # digest over the digests of all artifacts, so that a changed provenance.json shows too
TAG_NOT_FINITE = "fa.not_finite"
TAG_PROCESS = "fa.process"  # host:pid of the writer, to tell a zombie from a run at work
TAG_REPORT = "fa.report"
TAG_AUDIT = "fa.audit"  # digest of the whole report, on the audit's own run
TAG_FIRST_FIRE_BY = "fa.first_fire_by"  # the edition whose rules the tags fa.first_fire.* tell of
TAG_STOP_ON = "fa.stop_on"  # which rules were to end the run (--stop-on), and by which edition
TAG_STOPPED_ON = "fa.stopped_on"  # which of them did, and when
TAG_ADOPTED = "fa.adopted"  # "true" on a run that was trained elsewhere
TAG_NOTE = "mlflow.note.content"
TAG_PARENT = "mlflow.parentRunId"

SPEC = "spec.json"
MEASUREMENTS = "measurements.json"
PROVENANCE = "provenance.json"
SERIES = "series.parquet"
FAILURE = "failure.txt"
INITIAL = "checkpoints/init.safetensors"
FINAL = "checkpoints/final.safetensors"
FEEDBACK = "feedback/state.safetensors"
FEEDBACK_CARD = "feedback/card.json"

FINISHED_STATUSES = ("complete", "diverged")
STOPPED_EARLY = "stopped_early"  # all its files are there, but it is not the run its specification describes
SITE_METRICS = ("h_norm", "g_norm", "growth", "gain", "gamma")
SCALAR_METRICS = {
    "loss_train": "loss/train",
    "accuracy_train": "accuracy/train",
    "accuracy": "accuracy/test",
    "penalty": "penalty/total",
    "fidelity_min": "fidelity/min",
    "h_L": "h_L",
    "g_L": "g_L",
    "growth_max": "growth_max",
    "gamma_deep_mean": "gamma_deep_mean",
    "costate_cosine_mean": "costate_cosine/mean",
}
# Scalars that are kept by epoch for the pages; series.LAST_SITE adds the last entries of site quantities.
TRAJECTORY = ("h_L", "g_L", "growth_max", "accuracy", "loss_train", "gamma_deep_mean", "fidelity_min")


def first_fire_tag(rule: str) -> str:
    return f"fa.first_fire.{rule}"


def verdict_tag(edition: str, modified: bool = False) -> str:
    """The tag of an edition's verdict. MLflow takes letters, digits, `_-.: ` in it; a user's edition may be called anything.

    modified: with other thresholds than the edition's. Its verdict must not take the place of the edition's own.
    """
    name = re.sub(r"[^\w\-.: ]", "_", edition)[:MAX_EDITION]
    return f"fa.verdict.{name}{'.modified' if modified else ''}"


def epoch_checkpoint(epoch: int) -> str:
    return f"checkpoints/epoch_{epoch:04d}.safetensors"


def metrics(measurements: Measurements) -> Iterator[tuple[str, Reading]]:
    """(metric key, reading) of one epoch. Sites are zero-padded: charts sort keys as text."""
    for name in SITE_METRICS:
        for site, reading in enumerate(measurements.sites.get(name, ())):
            yield f"{name}/site_{site:02d}", reading
    for name, key in SCALAR_METRICS.items():
        if name in measurements.scalars:
            yield key, measurements.scalars[name]


def params(spec: RunSpec) -> dict[str, str]:
    """The resolved spec under cfg/…; MLflow logs an entry point's raw parameters itself, under their own names."""
    flat = {
        "method": spec.method,
        "architecture": spec.architecture,
        "dataset": spec.dataset,
        "seed": spec.seed,
        "epochs": spec.epochs,
        "penalty": spec.penalty,
        "control": spec.control,
        "precision": spec.precision,
        "device_class": spec.device_class,
    }
    flat |= {f"recipe/{name}": value for name, value in vars(spec.recipe).items()}
    flat |= {f"method_options/{name}": value for name, value in spec.method_options.items()}
    flat |= {f"architecture_options/{name}": value for name, value in spec.architecture_options.items()}
    flat |= {"weights": spec.weights} if spec.weights else {}
    return {f"cfg/{name}": str(value) for name, value in flat.items()}


def tags(spec: RunSpec, setting: str, study: str) -> dict[str, str]:
    """The tags a run carries from its first moment."""
    return {
        TAG_SCHEMA: str(SCHEMA),
        TAG_KIND: "run",
        TAG_SPEC: spec.identity,
        TAG_STUDY: study,
        TAG_SETTING: setting,
        TAG_STATUS: "running",
        "fa.method": spec.method_label,
    }
