"""Names in the store: tags, metric keys, artifact paths.

All code that reads or writes a store uses these names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from fa_registry import jsonio
from fa_registry.metrics import (
    DECLARED,
    HEADLINES,
    VALIDATION,
    Headline,
    Metric,
    declaration,
    logged_headline,
    value_in,
)
from fa_registry.records import EditionReference, Measurements, Reading, RunSpec
from fa_registry.schema_number import SCHEMA, check_schema

EXPERIMENT = "fa_registry"
DIGEST = 8  # characters of an edition's digest in the tag of its verdict
MAX_EDITION = 200  # characters of an edition's name in a tag; MLflow's keys end at 250

TAGS = "fa."  # prefix of every tag of fa_registry
TAG_SCHEMA = "fa.schema"  # the tracker sets it on every run that it creates, and refuses a run of another number
NUMBERED = {TAG_SCHEMA: str(SCHEMA)}
TAG_SPEC = "fa.spec"
TAG_STUDY = "fa.study"
TAG_STUDY_RUN = "fa.study_run"  # id of the study's own run, on each run that was trained for the study
TAG_SETTING = "fa.setting"
TAG_METHOD = "fa.method"  # label of the method without options
TAG_VARIANT = "fa.variant"  # on a study's own run: how this variant differs from study.toml, {"data": …, "scale": …}
# running | complete | diverged | stopped_early | interrupted | failed: MLflow's FINISHED can be wrong
TAG_STATUS = "fa.status"
TAG_KIND = "fa.kind"  # run | study | audit | launch
LAUNCH = "launch"  # kind of a run that `mlflow run` began and that fa_registry did not use
TAG_ARTIFACTS = "fa.artifacts"  # digest over the digests of all artifacts; also shows that provenance.json was changed
TAG_PAGES = "fa.pages"  # digests of the pages that an audit wrote: see tracking.page_digests
# on an audit's own run: the code that judged and rendered it, see reporting.render.renderer
TAG_RENDERER = "fa.renderer"
TAG_NOT_FINITE = "fa.not_finite"
TAG_PROCESS = "fa.process"  # the process that writes the run, to detect its end: see process_ownership.process_tag
TAG_LEASE = "fa.lease"  # choosing | asks | held: which of several attempts trains the specification, see tracking.lease
TAG_HEARTBEAT = "fa.heartbeat"  # heartbeat, which changes while the process works
TAG_EPOCH = "fa.epoch"  # `17 of 100`: progress, for display only; audits do not use it
TAG_RESUMED = "fa.resumed_from"  # the epoch after which the run resumed: the run's time does not include earlier epochs
TAG_STATE = "fa.state"  # the newest resume state that the run's process uploaded: see tracking.resume_upload
TAG_STOP = "fa.stop"  # a user sets `yes` on MLflow's page of a run, to stop the training of the run's study
TAG_REPORT = "fa.report"  # on an audited run: the id of the newest audit's own run
TAG_EXCLUDED = "fa.excluded"  # on a run that the newest audit could not judge: the id of that audit's own run
TAG_VERDICT = "fa.verdict"  # verdict by the leading edition of the newest audit; useful for sorting
TAG_PROOF = "fa.proof"  # level of proof of that verdict: stated, started or replayed, see protocol.replay_summary
TAG_AUDITS = (
    "fa.audits"  # number of audits of this store that selected the run; the user can edit it, so it is no evidence
)
TAG_EDITION = "fa.edition"  # on an audit's own run, and on a promoted version: the edition's readable name
TAG_SITES = "fa.sites_shown"  # on a deep network's run: the sites that have charts, see shown_sites
TAG_AUDIT = "fa.audit"  # digest of the whole report, on the audit's own run
TAG_AUDIT_NUMBER = "fa.audit_number"  # on an audit's own run: 1 + the largest number of an earlier audit of the study
TAG_FIRST_FIRE_BY = "fa.first_fire_by"  # the edition of the rules in the tags fa.first_fire.*
# the sets of its method's seeds that audits judged, in order: `3:1f2e3d4c 5:…`, see audits.selection
TAG_INTERIM_ANALYSES = "fa.interim_analyses"
TAG_STOP_ON = "fa.stop_on"  # the rules that could end the run (--stop-on), and their edition
TAG_STOPPED_ON = "fa.stopped_on"  # the rules that ended the run, and the epoch
TAG_CODE = "fa.code"  # digest over the code that trained the run, provenance.json's `code`: an index, no evidence
TAG_IMPORTED = "fa.imported"  # digest of the manifest of the bundle that contained the run
TAG_IMPORTED_ID = "fa.imported_id"  # id of the run in that bundle, which the pages of the bundle show
TAG_IMPORTED_VERDICT = "fa.imported_verdict"  # verdict on the run in that bundle; no audit of this store
TAG_IMPORTED_PROOF = "fa.imported_proof"  # level of proof of that verdict, according to the bundle
TAG_ADOPTED = "fa.adopted"  # "true" on a run that was trained elsewhere
# digest of the final weights' content, so that a search finds equal weights under another name
TAG_WEIGHTS = "fa.weights"
TAG_HEADLINE = "fa.headline"  # the main metric that the run's task declares, for lists and charts: see `headline`
# Tags of a model version that `promote` registers, in addition to those of its run. `fa.weights` is the SHA-256 of its file there.
TAG_RUN, TAG_FEEDBACK, TAG_CONTROL, TAG_INTEGRITY = "fa.run", "fa.feedback", "fa.control", "fa.integrity"
TAG_DESPITE, TAG_AUTHOR = "fa.despite", "fa.author"  # why a run that did not pass was promoted, and who decided it
REPEATED_TAGS = {  # tag → the field of provenance.json whose value the tag repeats
    TAG_METHOD: "method",
    TAG_SETTING: "setting",
    TAG_STUDY: "study",
    TAG_STOP_ON: "stop_on",
    TAG_STOPPED_ON: "ended_by",
    TAG_WEIGHTS: "final_weights",
}
TAG_NOTE = "mlflow.note.content"
# the note of a run until an audit replaces it
NOT_AUDITED = "**Not audited**: no verdict and no level of proof. `fa-registry audit` writes both here."
TAG_USER = "mlflow.user"
TAG_SOURCE = "mlflow.source.name"
TAG_DATA_USE = "mlflow.data.context"  # on a run's data set: its use
TAG_EXPERIMENT_KIND = "mlflow.experimentKind"  # on an experiment
TAG_VIEW = "mlflow.sharedViewState."  # on an experiment: prefix of the tag's name, before a view's key

SPEC = "spec.json"
MEASUREMENTS = "measurements.json"
PROVENANCE = "provenance.json"
SERIES = "series.parquet"
FAILURE = "failure.txt"
STATE = "resume"  # folder; removed when the run has ended
INITIAL = "checkpoints/init.safetensors"
FINAL = "checkpoints/final.safetensors"
STEP = re.compile(r"checkpoints/step_(\d{4,})\.safetensors")  # see step_checkpoint
FEEDBACK = "feedback/state.safetensors"
FEEDBACK_CARD = "feedback/card.json"
EVALUATION = "evaluation.safetensors"  # x and y of a user-supplied loop with a factory: recomputation needs both
FORM = "report/form.html"  # the newest audit's form of the run's group; a later audit replaces it
# The run's note: MLflow's page of two runs shows only files of the root folder, Markdown in full.
SHORT_FORM = "short_form.md"
ADDED_BY_AUDITS = (FORM, SHORT_FORM)
# Files of an audit's own run.
AUDIT_PAGE = "index.html"
AUDIT_REPORT = "audit.json"
PAGE_DIGESTS = "digests.json"  # the SHA-256 of every page, see tracking.page_digests

PARAM = "cfg/"  # prefix of every parameter of the specification
PARAM_SEED, PARAM_WEIGHTS = f"{PARAM}seed", f"{PARAM}weights"
FINISHED_STATUSES = ("complete", "diverged")
STOPPED_EARLY = "stopped_early"  # all files are present, but the run has fewer epochs than its specification
INTERRUPTED = "interrupted"  # stopped by Ctrl-C or by a request to stop: the same command resumes the run
ENDED_STATUSES = (*FINISHED_STATUSES, STOPPED_EARLY, INTERRUPTED, "failed")  # no process writes to such a run any more
SITE_MARK = "/site_"  # between the name of a site metric and the number of the site in a metric key
SITE_KEYS = {"h_norm": "h_norm", "g_norm_mean_ce": "g_norm", "growth": "growth", "gain": "gain", "gamma": "gamma"}
SITE_METRICS = tuple(SITE_KEYS)  # ‖g‖ is that of the mean loss, as on every page
MAX_METRICS = 100  # keys per run: MLflow draws a chart per key, and more keys slow its pages down
SCALAR_METRICS = {
    **{name: f"{name}/test" for name in HEADLINES},
    "token_loss": "loss/test_per_token",
    "perplexity": "perplexity/test",
    "bits_per_token": "bits_per_token/test",
    "excess_nats": "excess_nats/test",
    "loss_train": "loss/train",
    "accuracy_train": "accuracy/train",
    f"accuracy{VALIDATION}": "accuracy/validation",
    f"token_loss{VALIDATION}": "loss/validation_per_token",
    "penalty": "penalty/total",
    "fidelity_min": "fidelity/min",
    "h_L": "h_L",
    "g_norm_mean_ce_L": "g_L",
    "growth_max": "growth_max",
    "growth_init_max": "growth_init_max",
    "gamma_deep_mean": "gamma_deep_mean",
    "costate_cosine_mean": "costate_cosine/mean",
}
TOKEN_METRICS = ("token_loss", "perplexity", "bits_per_token", "excess_nats")  # other runs have accuracies
CHARTS = "charts"  # in provenance.json: the names of the third-party metrics that have charts
EPOCH_CHAIN = "epoch_chain"  # in provenance.json: the chained digests, see training.epoch_chain
SELECTED = (
    "selected_epoch"  # in provenance.json: the epoch to whose state the final files belong, if the recipe selects one
)
KEPT_STATES = "kept_states"  # in provenance.json: the epochs after which states were kept
MOST_CHARTS = 20  # charts of third-party metrics; with more charts, the sites of built-in metrics would have no charts
SEED = re.compile("-?[0-9]{1,19}")
CHARTABLE = re.compile(r"[\w.\- ]{1,200}")  # a name that can be a metric's key unchanged


def headline_tag(headline: Headline) -> dict[str, str]:
    """Return the tag with the declaration of a task's own main metric; empty for a built-in main metric."""
    fields = declaration(headline)
    return {TAG_HEADLINE: jsonio.canonical(fields)} if fields else {}


def headline(run_tags: Mapping[str, str], run_metrics: Collection[str]) -> Headline:
    """Return the main metric of a run according to its tags and metric keys.

    For lists, charts and the early refusal of an edition: an audit judges by measurements.json.
    """
    try:
        fields = jsonio.loads(run_tags.get(TAG_HEADLINE, "{}"))
    except ValueError:
        fields = {}
    names = [name for name, key in SCALAR_METRICS.items() if key in run_metrics]
    return logged_headline(names, fields if isinstance(fields, dict) else {})


def is_verdict_tag(name: str) -> bool:
    """Return whether an audit writes the tag as its verdict on a run, or as the verdict's level of proof."""
    return name.startswith(TAG_VERDICT) or name == TAG_PROOF


def first_fire_tag(rule: str) -> str:
    return f"{TAGS}first_fire.{rule}"


def verdict_tag(edition: EditionReference) -> str:
    """Return the name of the tag that contains the verdict of an edition: `fa.verdict.2026-05.23d1b7cd`.

    The name contains the edition's name and the first 8 characters of its digest. Characters that MLflow does not allow in a tag
    are replaced by `_`. If the user changed thresholds of the edition, the name ends with `.modified`. The verdict of the
    modified edition therefore does not replace the verdict of the unmodified edition.
    """
    name = re.sub(r"[^\w\-.: ]", "_", edition.name)[:MAX_EDITION]
    return f"{TAG_VERDICT}.{name}.{edition.digest[:DIGEST]}{'.modified' if edition.overrides else ''}"


def step_checkpoint(step: int) -> str:
    """Return the artifact path of the state after the first `step` training steps.

    The file contains tensors named `network.…` and `feedback.…`.
    """
    return f"checkpoints/step_{step:04d}.safetensors"


def recorded_early_step(names: Iterable[str]) -> int | None:
    """Return the step of the first step checkpoint among artifact paths, or None if there is none."""
    steps = [int(match[1]) for name in names if (match := STEP.fullmatch(name))]
    return min(steps, default=None)


def epoch_checkpoint(epoch: int) -> str:
    return f"checkpoints/epoch_{epoch:04d}.safetensors"


def kept_state(epoch: int) -> str:
    """Return the artifact path of the full training state after an epoch."""
    return f"checkpoints/state_{epoch:04d}.safetensors"


def after_kept_state(epoch: int) -> str:
    """Return the artifact path of the state one epoch after a kept training state.

    An audit replays the epoch that follows `epoch` and must reproduce this state.
    """
    return f"checkpoints/state_{epoch:04d}_next.safetensors"


def resume_state(slot: str, name: str) -> str:
    """Return the artifact path of a resume state. A run writes alternately to two slots."""
    return f"{STATE}/{slot}/{name}.resume"


def charts(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return the third-party metrics that have charts. A metric family has none: it has many metrics."""
    third_party = (
        metric for metric in metrics if metric.name not in DECLARED and not metric.family and not metric.about
    )
    return tuple(metric.name for metric in third_party if CHARTABLE.fullmatch(metric.name))[:MOST_CHARTS]


def metrics(measurements: Measurements, extra_metrics: Sequence[str] = ()) -> Iterator[tuple[str, Reading]]:
    """Yield pairs (metric key, reading) of one epoch, one per metric with a chart.

    A reading is a value, or the reason why there is no value. Test accuracy is the first metric, because MLflow's page of two
    runs first plots the metric that was logged first. `extra_metrics` are the names that `charts` returns.
    """
    for name, key in scalar_metrics(extra_metrics).items():
        if reading := value_in(measurements, name):
            yield key, reading
    for name in (*SITE_METRICS, *extra_metrics):
        readings = measurements.sites.get(name, ())
        for site in shown_sites(len(readings), extra_metrics):
            yield site_metric(name, site, len(readings)), readings[site]


def shown(value: float) -> float:
    """Round a value to four significant digits for the store's pages."""
    return float(f"{value:.4g}")


def scalar_metrics(extra_metrics: Sequence[str] = ()) -> dict[str, str]:
    """Return name → metric key of all scalar metrics. The key of a third-party metric is its name."""
    return {**SCALAR_METRICS, **{name: name for name in extra_metrics}}


def site_metric(name: str, site: int, count: int) -> str:
    """Return the metric key of a site metric at one of `count` sites.

    The number of the site has leading zeros, because charts sort the keys as text.
    """
    return f"{SITE_KEYS.get(name, name)}{SITE_MARK}{site:0{max(2, len(str(count - 1)))}d}"


def shown_sites(count: int, extra_metrics: Sequence[str] = ()) -> tuple[int, ...]:
    """Return the sites that have charts: all, or evenly spaced sites."""
    return spread(count - 1, most_sites(extra_metrics))


def most_sites(extra_metrics: Sequence[str] = ()) -> int:
    """Return the maximum number of charts per site metric. A run has at most 100 metric keys."""
    # `extra_metrics` are counted as scalar metrics and as site metrics, because their kinds are unknown
    key_count = MAX_METRICS - 1 - len(SCALAR_METRICS) + len(TOKEN_METRICS) - len(extra_metrics)
    return key_count // (len(SITE_METRICS) + len(extra_metrics))


def shown_epochs(epochs: int, limit: int) -> Collection[int]:
    """Return the epochs for which the store's tables contain points.

    There are at most `limit` epochs. If `limit` is 0, the result contains all epochs.
    """
    return frozenset(spread(epochs, limit)) if limit else range(epochs + 1)


def spread(last: int, limit: int) -> tuple[int, ...]:
    """Return at most `limit` evenly spaced integers from 0 to `last`; `last` is omitted if the limit is 1."""
    count = min(last + 1, limit)
    return tuple(round(index * last / (count - 1)) for index in range(count)) if count > 1 else tuple(range(count))


def sites_tag(measurements: Measurements, extra_metrics: Sequence[str] = ()) -> dict[str, str]:
    """Return the tag that lists the sites with charts, or an empty dict if all sites have charts."""
    count = max((len(measurements.sites.get(name, ())) for name in SITE_METRICS), default=0)
    if count <= most_sites(extra_metrics):
        return {}
    return {
        TAG_SITES: f"{', '.join(map(str, shown_sites(count, extra_metrics)))} of 0..{count - 1}; {SERIES} contains all sites"
    }


def params(spec: RunSpec) -> dict[str, str]:
    """Return the specification as MLflow parameters with names such as `cfg/seed`."""
    fields = {
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
    fields |= {f"recipe/{name}": value for name, value in jsonio.encode(spec.recipe).items()}
    fields |= {f"method_options/{name}": value for name, value in spec.method_options.items()}
    fields |= {f"architecture_options/{name}": value for name, value in spec.architecture_options.items()}
    fields |= {name: getattr(spec, name) for name in ("weights", "penalty_embedding") if getattr(spec, name)}
    return {f"{PARAM}{name}": str(value) for name, value in fields.items()}


def seed_of(params: Mapping[str, str]) -> int | None:
    """Return the seed from a run's parameters, or None if the seed is missing or invalid."""
    seed_text = params.get(PARAM_SEED, "")
    seed = int(seed_text) if SEED.fullmatch(seed_text) else None
    return seed if seed is not None and seed.bit_length() < 64 else None


def check_run(run_id: str, tags: Mapping[str, str]) -> None:
    """Raise UsageError if a run of this package has another schema number.

    Other runs of the store have no number.
    """
    if TAG_KIND in tags or TAG_SPEC in tags:
        advice = "use another store (--store), the fa_registry that made the run, or delete the run in MLflow"
        check_schema(f"run {run_id} of the store", tags.get(TAG_SCHEMA), advice)


def tags(spec: RunSpec, setting: str, study: str) -> dict[str, str]:
    """Return the tags that a run has when it is created."""
    return {
        TAG_KIND: "run",
        TAG_SPEC: spec.identity,
        TAG_STUDY: study,
        TAG_SETTING: setting,
        TAG_STATUS: "running",
        TAG_METHOD: spec.method_label,
    }
