"""The labels of groups, the file names of forms, and the commands that retrain a run."""

from __future__ import annotations

import dataclasses
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from fa_registry.metrics import Metric, symbol_of
from fa_registry.protocol.grouping import Group
from fa_registry.records import FROZEN_LONG, LONGER, Recipe, RunSpec, Scalar
from fa_registry.records.runs import pairs, plain
from fa_registry.statistics.over_seeds import GEOMETRIC

ALWAYS = ("method", "architecture", "dataset", "seed", "epochs")
OPTIONAL = ("penalty", "control")
SETTINGS = ("precision", "penalty_embedding")


def group_label(group: Group) -> str:
    """Return the label of a group: its method name with the options of the method.

    In a comparison of single runs, the method name of a group also contains the seed and id of its run.
    """
    return group.runs[0].record.spec.labelled(group.method)


def options_text(group: Group) -> str:
    """Return the options that differ from the defaults: `sigma=0.3, skip=false`, or "" if there are none."""
    return pairs(group.runs[0].record.spec.distinct).replace(",", ", ")


def short_names(labels: Sequence[str], letters: int) -> list[str]:
    """Return short and distinct labels for a figure.

    If a method name occurs in only one label, the options in this label are removed. Then labels longer than `letters` characters
    are cut, and equal labels get a number.
    """
    method_names = [label.split(" (")[0] for label in labels]
    unique_names = [
        name if method_names.count(name) == 1 else label for name, label in zip(method_names, labels, strict=True)
    ]
    cut = [name if len(name) <= letters else f"{name[: letters - 1]}…" for name in unique_names]
    return [
        name if cut.count(name) == 1 else f"{name[: letters - 4].rstrip('…')}… {index + 1}"
        for index, name in enumerate(cut)
    ]


def slug(group: Group) -> str:
    """Return the file name of a group's reporting form, without suffix.

    The name is valid on every file system, and it does not depend on other groups. The last six characters of the name are from
    the digest of the specification without the seed. Therefore fa_registry finds the form of a group again
    after a user has filled in its blanks. All adopted runs of a specification have the same name, regardless of their weight files.
    """
    first = group.runs[0].record.spec
    spec = dataclasses.replace(first, seed=0, weights="adopted" if first.weights else "")
    return f"{file_name(f'{spec.method_label}--{group.setting}')}-{spec.identity[:6]}"


def file_name(text: str) -> str:
    """Return the text as a readable file name that is valid on every file system."""
    decomposed = unicodedata.normalize("NFKD", text.replace(symbol_of("gamma"), "gamma"))
    ascii_text = decomposed.encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9.]+", "-", ascii_text).strip("-.")[:80]


def command(spec: RunSpec) -> str:
    """Return the exact command that retrains a run, quoted for a POSIX shell.

    Options with their default values are omitted. Values without a separate parameter in MLproject, such as recipe fields and
    options of method and architecture, are in `settings`. An adopted run cannot be retrained, so its command adopts the weights
    file with the recorded SHA-256. No command retrains a run of a user-supplied loop, so the result is a comment that names the
    arguments of `fa_registry.track`.
    """
    if spec.is_tracked:
        role = "control=True" if spec.control == "frozen" else f"method={spec.method!r}"
        epochs = f"epochs={spec.epochs}, " if spec.epochs else ""  # 0: a loop that failed before its length was known
        options = f"dataset={spec.dataset!r}, seed={spec.seed}, {epochs}{role}"
        return f"# run your training loop again: fa_registry.track(…, {options})"
    values = _parameters(spec)
    if not spec.weights:
        parameters = " ".join(f"-P {shlex.quote(f'{name}={value}')}" for name, value in values.items())
        return f"mlflow run . -e train --env-manager local {parameters}"
    return f"fa-registry adopt WEIGHTS {_options(values)}  # WEIGHTS: the file with SHA-256 {spec.weights}"


def train_line(spec: RunSpec, study: str, force: bool = False) -> str:
    """Return the `fa-registry` command that trains a run again.

    For an adopted run and a run of a user-supplied loop, the result is that of `command`.

    Args:
        spec: Specification of the run.
        study: Name of the run's study; empty if the run belongs to no study. The audit of a study prefers runs with its tag.
        force: Whether to retrain the run even if the store has a finished run.
    """
    if spec.weights or spec.is_tracked:
        return command(spec)
    return f"fa-registry train {_options({**_parameters(spec), 'study': study})}{' --force' if force else ''}"


def control_of(spec: RunSpec) -> RunSpec:
    """Return the specification of a run's frozen control: its setting and its seed, with the method bp."""
    return dataclasses.replace(
        spec.setting, method="bp", control="frozen", seed=spec.seed, recipe=spec.recipe.for_controls
    )


def frozen_long_of(spec: RunSpec) -> RunSpec:
    """Return the specification of a run's control frozen_long, which trains longer than the run."""
    control = control_of(spec)
    return dataclasses.replace(control, control=FROZEN_LONG, epochs=LONGER * control.epochs)


def _options(values: Mapping[str, str]) -> str:
    options = {"set" if name == "settings" else name: value for name, value in values.items()}
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in options.items() if value)


def _parameters(spec: RunSpec) -> dict[str, str]:
    blank = RunSpec("", "", "", 0, 0)
    values: dict[str, Scalar] = {name: getattr(spec, name) for name in ALWAYS}
    values["device"] = spec.device_class
    values |= {name: getattr(spec, name) for name in OPTIONAL if getattr(spec, name) != getattr(blank, name)}
    settings: dict[str, Scalar] = {
        field.name: getattr(spec.recipe, field.name)
        for field in dataclasses.fields(Recipe)
        if getattr(spec.recipe, field.name) != field.default
    }
    settings |= {name: getattr(spec, name) for name in SETTINGS if getattr(spec, name) != getattr(blank, name)}
    settings |= {f"architecture.{name}": value for name, value in spec.architecture_options.items()}
    settings |= {f"method.{name}": value for name, value in spec.method_options.items()}
    if settings:
        values["settings"] = pairs(settings)
    return {name: plain(value) for name, value in values.items()}


def means_in_text(columns: Iterable[Metric]) -> str:
    """Return the kind of mean in a table: `means over seeds (geometric for …)`."""
    symbols = list(dict.fromkeys(column.symbol for column in columns if column.mean == GEOMETRIC))
    return f"means over seeds{f' (geometric for {join_with_and(symbols)})' if symbols else ''}"


def join_with_and(texts: Sequence[str]) -> str:
    """Return the texts as one text: `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
