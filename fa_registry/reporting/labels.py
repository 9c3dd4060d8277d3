"""Names of groups and of the files their forms are written to, and the command line that trains a run again."""

from __future__ import annotations

import dataclasses
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from fa_registry import jsonio
from fa_registry.metrics import Metric
from fa_registry.protocol.grouping import Group
from fa_registry.records import Recipe, RunSpec, Scalar
from fa_registry.records.runs import pairs, plain
from fa_registry.statistics.over_seeds import GEOMETRIC

ALWAYS = ("method", "architecture", "dataset", "seed", "epochs")
OPTIONAL = ("penalty", "control")
SETTINGS = ("precision",)


def group_label(group: Group) -> str:
    """RunSpec.label of its runs, under the group's own name: a column of compare names a single run."""
    return group.runs[0].record.spec.labelled(group.method)


def options_text(group: Group) -> str:
    """What makes its method another than the plain one, `sigma=0.3, skip=false`; empty where nothing does."""
    return pairs(group.runs[0].record.spec.distinct).replace(",", ", ")


def short_names(labels: Sequence[str], letters: int) -> list[str]:
    """Labels of a figure: without options where the name alone tells them apart, cut to `letters` and still distinct."""
    bare = [label.split(" (")[0] for label in labels]
    plain = [name if bare.count(name) == 1 else label for name, label in zip(bare, labels, strict=True)]
    cut = [name if len(name) <= letters else f"{name[: letters - 1]}…" for name in plain]
    return [
        name if cut.count(name) == 1 else f"{name[: letters - 4].rstrip('…')}… {place + 1}"
        for place, name in enumerate(cut)
    ]


def slug(group: Group) -> str:
    """The file name of a group's form: readable, safe on every file system, and the same whatever else is audited.

    The six digits are of the spec without its seed, so that a form that a person filled in finds its group again.
    Adopted runs form a group whatever their files.
    """
    first = group.runs[0].record.spec
    spec = dataclasses.replace(first, seed=0, weights="adopted" if first.weights else "")
    return f"{file_name(f'{spec.method_label}--{group.setting}')}-{jsonio.digest_of(spec)[:6]}"


def file_name(text: str) -> str:
    """Readable, and safe on every file system."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")[:80]


def command(spec: RunSpec) -> str:
    """The exact line that trains this run again. Every value is quoted for a POSIX shell; defaults are left out.

    What has no parameter of its own in MLproject (recipe fields, options of method and architecture) goes into `settings`.
    An adopted run cannot be trained again: its line adopts the file with its SHA-256.
    """
    values = _parameters(spec)
    if not spec.weights:
        parameters = " ".join(f"-P {shlex.quote(f'{name}={value}')}" for name, value in values.items())
        return f"mlflow run . -e train --env-manager local {parameters}"
    return f"fa-registry adopt WEIGHTS {_options(values)}  # WEIGHTS: the file with SHA-256 {spec.weights}"


def train_line(spec: RunSpec, study: str = "", again: bool = False) -> str:
    """The same run by the command line alone. again: although the store holds a finished one. One adopted is adopted again.

    study: which it is trained for, empty for none. Its audit takes a run that is tagged with it before any other.
    """
    if spec.weights:
        return command(spec)
    return f"fa-registry train {_options({**_parameters(spec), 'study': study})}{' --force' if again else ''}"


def control_of(spec: RunSpec) -> RunSpec:
    """The frozen control of a run: of its setting and seed, by bp."""
    recipe = dataclasses.replace(spec.recipe, credit_norm=Recipe().credit_norm)
    return dataclasses.replace(spec.setting, method="bp", control="frozen", seed=spec.seed, recipe=recipe)


def _options(values: Mapping[str, str]) -> str:
    named = {"set" if name == "settings" else name: value for name, value in values.items()}
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in named.items() if value)


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
    """Which mean the columns of a table are, to be said once: `arithmetic means over seeds, geometric means of …`."""
    symbols = list(dict.fromkeys(column.symbol for column in columns if column.mean == GEOMETRIC))
    named = " and ".join(part for part in (", ".join(symbols[:-1]), *symbols[-1:]) if part)
    return f"arithmetic means over seeds, geometric means of {named}" if named else "arithmetic means over seeds"
