"""Names in the store: tags, metric keys, artifact paths. One table, read by writers and readers alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from fa_registry.metrics import DECLARED, Metric
from fa_registry.records import SCHEMA, EditionReference, Measurements, Reading, RunSpec
from fa_registry.tracking.base import MOST_POINTS

EXPERIMENT = "fa_registry"
DIGEST = 8  # characters of an edition's digest in the tag of its verdict
MAX_EDITION = 200  # characters of an edition's name in a tag; MLflow's keys end at 250

TAG_SCHEMA = "fa.schema"
TAG_SPEC = "fa.spec"
TAG_STUDY = "fa.study"
TAG_STUDY_RUN = "fa.study_run"  # the study's own run that this one was trained for
TAG_SETTING = "fa.setting"
TAG_METHOD = "fa.method"  # its label without options
TAG_TWIN = "fa.twin"  # on a study's own run: what makes it another than its study.toml, {"data": …, "scale": …}
TAG_STATUS = (
    "fa.status"  # running | complete | diverged | stopped_early | interrupted | failed: MLflow's FINISHED can be wrong
)
TAG_KIND = "fa.kind"  # run | study | audit | launch
LAUNCH = "launch"  # the kind of a run that `mlflow run` began and that became none of ours
TAG_ARTIFACTS = "fa.artifacts"  # digest over the digests of all artifacts, so that a changed provenance.json shows too
TAG_PAGES = "fa.pages"  # what seals the pages that an audit wrote: see tracking.page_digests
TAG_RENDERER = (
    "fa.renderer"  # on an audit's own run: the code that judged and rendered it, see reporting.render.renderer
)
TAG_NOT_FINITE = "fa.not_finite"
TAG_PROCESS = "fa.process"  # who writes it, to tell a zombie from a run at work: see process_ownership.process_tag
TAG_CLAIM = "fa.claim"  # choosing | asks | held: who of several attempts trains the specification, see tracking.lease
TAG_SIGN = "fa.sign_of_life"  # changes as long as the process is at work
TAG_EPOCH = "fa.epoch"  # `17 of 100`: how far it is, for who watches; nothing that an audit asks
TAG_RESUMED = "fa.resumed_from"  # the epoch after which it went on: those before took none of its time
TAG_STATE = "fa.state"  # the newest state to go on from that its process kept in the store: see tracking.resume_upload
TAG_STOP = "fa.stop"  # `yes` on any run of a study: nothing more of it is trained, set by a person on MLflow's page
TAG_REPORT = "fa.report"  # on an audited run: the id of the newest audit's own run
TAG_VERDICT = "fa.verdict"  # by the leading edition of the newest audit; a column worth sorting by
TAG_EDITION = "fa.edition"  # on an audit's own run, and on a promoted version: by which edition, as people read it
TAG_SITES = "fa.sites_shown"  # on a deep network's run: which sites have charts, see shown_sites
TAG_AUDIT = "fa.audit"  # digest of the whole report, on the audit's own run
TAG_AUDIT_NUMBER = (
    "fa.audit_number"  # on an audit's own run: 1 + the largest of its study's audits, whatever a clock says
)
TAG_FIRST_FIRE_BY = "fa.first_fire_by"  # the edition whose rules the tags fa.first_fire.* tell of
TAG_LOOKS = (
    "fa.looks"  # the sets of its method's seeds that audits judged, in order: `3:1f2e3d4c 5:…`, see workflows.selection
)
TAG_STOP_ON = "fa.stop_on"  # which rules were to end the run (--stop-on), and by which edition
TAG_STOPPED_ON = "fa.stopped_on"  # which of them did, and when
TAG_CODE = "fa.code"  # digest over the code that trained the run, provenance.json's `code`: an index, no evidence
TAG_IMPORTED = "fa.imported"  # digest of the manifest of the bundle that the run came in
TAG_ADOPTED = "fa.adopted"  # "true" on a run that was trained elsewhere
TAG_WEIGHTS = (
    "fa.weights"  # digest of the final weights' content, so that a search finds the same ones under another name
)
TAG_NOTE = "mlflow.note.content"
TAG_PARENT = "mlflow.parentRunId"  # of older releases: MLflow's table folds such runs away, see docs/decisions/0039

SPEC = "spec.json"
MEASUREMENTS = "measurements.json"
PROVENANCE = "provenance.json"
SERIES = "series.parquet"
FAILURE = "failure.txt"
STATE = "resume"  # folder; gone when the run has ended
INITIAL = "checkpoints/init.safetensors"
FINAL = "checkpoints/final.safetensors"
STEP = re.compile(r"checkpoints/step_(\d{4,})\.safetensors")  # see step_checkpoint
FEEDBACK = "feedback/state.safetensors"
FEEDBACK_CARD = "feedback/card.json"
FORM = "report/form.html"  # the newest audit's form of the run's group; a later audit replaces it
SHORT_FORM = (
    "short_form.md"  # the run's note: MLflow's page of two runs shows files of the root alone, and Markdown in full
)
ADDED_BY_AUDITS = (FORM, SHORT_FORM)

PARAM = "cfg/"  # before the name of every parameter that is of the specification
FINISHED_STATUSES = ("complete", "diverged")
STOPPED_EARLY = "stopped_early"  # all its files are there, but it is not the run its specification describes
INTERRUPTED = "interrupted"  # stopped by Ctrl-C or by a request to stop: the same command goes on from there
ENDED_STATUSES = (*FINISHED_STATUSES, STOPPED_EARLY, INTERRUPTED, "failed")  # nobody writes to such a run any more
SITE_METRICS = ("h_norm", "g_norm", "growth", "gain", "gamma")
MAX_METRICS = 100  # keys a run: MLflow draws a chart of each, and its pages slow down beyond
MARGIN = "margin_pp"  # accuracy − frozen accuracy, written by an audit: no run knows its control
SCALAR_METRICS = {
    "accuracy": "accuracy/test",
    "loss_train": "loss/train",
    "accuracy_train": "accuracy/train",
    "penalty": "penalty/total",
    "fidelity_min": "fidelity/min",
    "h_L": "h_L",
    "g_L": "g_L",
    "growth_max": "growth_max",
    "growth_init_max": "growth_init_max",
    "gamma_deep_mean": "gamma_deep_mean",
    "costate_cosine_mean": "costate_cosine/mean",
}
CHARTS = "charts"  # in provenance.json: the names of those quantities of other packages that have charts too
EPOCH_CHAIN = "epoch_chain"  # in provenance.json: the chained digests, see training.epoch_chain
KEPT_STATES = "kept_states"  # in provenance.json: the epochs after which states were kept
MOST_CHARTS = 20  # of them; more would leave no site of our own a chart
SEED = re.compile("-?[0-9]{1,19}")
CHARTABLE = re.compile(r"[\w.\- ]{1,200}")  # a name that is a metric's key as it stands


def first_fire_tag(rule: str) -> str:
    return f"fa.first_fire.{rule}"


def verdict_tag(edition: EditionReference) -> str:
    """The tag of an edition's verdict, as `fa.verdict.2026-11.23d1b7cd`: its name and the start of its file's digest.

    MLflow takes letters, digits, `_-.: ` in it; a user's edition may be called anything. With other thresholds than the
    edition's it ends on `.modified`: such a verdict must not take the place of the edition's own.
    """
    name = re.sub(r"[^\w\-.: ]", "_", edition.name)[:MAX_EDITION]
    return f"{TAG_VERDICT}.{name}.{edition.digest[:DIGEST]}{'.modified' if edition.overrides else ''}"


def step_checkpoint(step: int) -> str:
    """Where the first steps led: network and feedback state in one file, `network.…` and `feedback.…`."""
    return f"checkpoints/step_{step:04d}.safetensors"


def sealed_step(names: Iterable[str]) -> int | None:
    """The step of the step checkpoint among these artifacts; None where there is none."""
    steps = [int(match[1]) for name in names if (match := STEP.fullmatch(name))]
    return min(steps, default=None)


def epoch_checkpoint(epoch: int) -> str:
    return f"checkpoints/epoch_{epoch:04d}.safetensors"


def kept_state(epoch: int) -> str:
    """Return the file of everything that training continues from after this epoch (`keep_states`)."""
    return f"checkpoints/state_{epoch:04d}.safetensors"


def after_kept_state(epoch: int) -> str:
    """Return the file of network and feedback state one epoch after a kept state: where an audit's replay must arrive."""
    return f"checkpoints/state_{epoch:04d}_next.safetensors"


def charts(quantities: Iterable[Metric]) -> tuple[str, ...]:
    """The names of those that are not ours and have charts all the same; no family has, whose members are many."""
    third_party = (one for one in quantities if one.name not in DECLARED and not one.family and not one.about)
    return tuple(one.name for one in third_party if CHARTABLE.fullmatch(one.name))[:MOST_CHARTS]


def metrics(measurements: Measurements, further: Sequence[str] = ()) -> Iterator[tuple[str, Reading]]:
    """(metric key, reading) of one epoch. Sites are zero-padded: charts sort keys as text. Deep networks show some of them.

    Test accuracy comes first: MLflow's page of two runs opens on a plot of the metric that was logged first.
    further: names that `charts` gave.
    """
    for name, key in scalar_metrics(further).items():
        if name in measurements.scalars:
            yield key, measurements.scalars[name]
    for name in (*SITE_METRICS, *further):
        readings = measurements.sites.get(name, ())
        for site in shown_sites(len(readings), further):
            yield site_metric(name, site, len(readings)), readings[site]


def shown(value: float) -> float:
    """A number as the store's pages get it, which print every digit: four significant ones. The series has it exactly."""
    return float(f"{value:.4g}")


def scalar_metrics(further: Sequence[str] = ()) -> dict[str, str]:
    """Scalar → the key of its metric; what is not ours goes by its own name."""
    return {**SCALAR_METRICS, **{name: name for name in further}}


def site_metric(name: str, site: int, count: int) -> str:
    """The key of a site quantity at one of its `count` sites."""
    return f"{name}/site_{site:0{max(2, len(str(count - 1)))}d}"


def shown_sites(count: int, further: Sequence[str] = ()) -> tuple[int, ...]:
    """Which of `count` sites have charts: all, or as many as there is room for. The series has all."""
    return spread(count - 1, most_sites(further))


def most_sites(further: Sequence[str] = ()) -> int:
    """Of each site quantity: so many that the scalars and the audit's margin have room too."""
    room = MAX_METRICS - 1 - len(SCALAR_METRICS) - len(further)  # whether one of those is by site, nobody knows before
    return room // (len(SITE_METRICS) + len(further))


def shown_epochs(epochs: int, most: int = MOST_POINTS) -> Collection[int]:
    """Of which of 0..`epochs` a metric has a point in the store's tables; most 0: of all. The series has every epoch."""
    return frozenset(spread(epochs, most)) if most else range(epochs + 1)


def spread(last: int, most: int) -> tuple[int, ...]:
    """At most `most` of the numbers 0..last, evenly spread, first and last included."""
    count = min(last + 1, most)
    return tuple(round(index * last / (count - 1)) for index in range(count)) if count > 1 else tuple(range(count))


def sites_tag(measurements: Measurements, further: Sequence[str] = ()) -> dict[str, str]:
    """TAG_SITES where sites are left out of the charts; nothing where all are there."""
    count = max((len(measurements.sites.get(name, ())) for name in SITE_METRICS), default=0)
    if count <= most_sites(further):
        return {}
    return {TAG_SITES: f"{', '.join(map(str, shown_sites(count, further)))} of 0..{count - 1}; all are in {SERIES}"}


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
    return {f"{PARAM}{name}": str(value) for name, value in flat.items()}


def seed_of(params: Mapping[str, str]) -> int | None:
    """Return the seed among a run's parameters; None where it is none that a run can have."""
    written = params.get(f"{PARAM}seed", "")
    seed = int(written) if SEED.fullmatch(written) else None
    return seed if seed is not None and seed.bit_length() < 64 else None


def tags(spec: RunSpec, setting: str, study: str) -> dict[str, str]:
    """The tags a run carries from its first moment."""
    return {
        TAG_SCHEMA: str(SCHEMA),
        TAG_KIND: "run",
        TAG_SPEC: spec.identity,
        TAG_STUDY: study,
        TAG_SETTING: setting,
        TAG_STATUS: "running",
        TAG_METHOD: spec.method_label,
    }
