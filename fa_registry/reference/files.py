"""Generator of docs/reference-files.md: the files that users write.

Names, types and defaults come from the records that read the files. The descriptions are the texts below the fields of the records.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fa_registry.protocol.edition_schema import Condition, EditionFile, FarSeed, Rule
from fa_registry.protocol.engine import JUDGES
from fa_registry.protocol.operators import OPERATORS, TAKES
from fa_registry.protocol.waivers import LEAST_RUN, WaiverFields
from fa_registry.records import Option, Recipe, RunSpec, Waiver
from fa_registry.reference.templates import cell, first_line, text_below, type_text
from fa_registry.studies.study import AXES, CONTROLS, TABLES, Grid, RecipeField, StudyTable
from fa_registry.training import controls
from fa_registry.training.specs import REQUIRED, TYPES

NEEDED = "needed"
LISTS = [axis for axis, field in AXES.items() if field in REQUIRED and axis not in TABLES["recipe"]]  # keys of a grid
OF_A_WAIVER = {field.name: field for field in dataclasses.fields(WaiverFields)}
KINDS = {
    **{name: f"[table](#{name})" for name in TABLES},
    **{name: "date" for name, hint in typing.get_type_hints(WaiverFields).items() if hint is datetime.date},
}  # kinds of values that are more specific than the type
KEYS = "| key | values | default | description |\n|---|---|---|---|"
INTRODUCTION = """# Reference: files that you write

Generated from the code by `python -m fa_registry.reference --write`; do not edit.

TOML 1.0, UTF-8. Unknown keys are rejected with a suggestion. All wrong fields of a file are reported together, before anything is
trained or measured; contradictions between fields are reported once all fields are right. `reference.toml`, published values to
compare a study with, has [a separate page](reference.md).

Each file may contain `schema`, the number of this format, at its top. A file of another number is refused; without the key, the
file is read as one of the installed package.
"""
STUDY = """
## study.toml

Each study has its own folder; the built-in ones are in `projects/`. `fa-registry study my/study.toml --dry-run` prints the runs it
would train and their cost, and trains nothing.

```toml
name = "mine"
title = "Two methods, with and without the penalty"
edition = "2026-12"
cost = "two minutes on two cores"

[recipe]
epochs = 20
learning_rate = 2e-3

[controls]
shallow = true

[[grid]]
name = "narrow"
methods = ["dfa", "fa"]
architectures = ["resmlp"]
architecture_options = { d_hidden = 64, num_blocks = 3 }
datasets = ["digits"]
seeds = [1, 2, 3]
penalties = [0.0, 1e-2]

[[grid]]
name = "narrow"
methods = ["bp"]
architectures = ["resmlp"]
architecture_options = { d_hidden = 64, num_blocks = 3 }
datasets = ["digits"]
seeds = [1, 2, 3]
```

A list in `recipe`, `method_options` or `architecture_options` is a sweep. Each value of a recipe or network is a setting with its
own controls. Each value of a method's option is a variant of the method. For each seed, this grid has four runs and two controls:

```toml
[[grid]]
methods = ["dtp"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2, 3]
recipe = { learning_rate = [1e-3, 3e-3] }
method_options = { sigma = [0.1, 0.3] }
```

`--set` sweeps an existing study without a file. The audit needs the same option:

    fa-registry study digits --set learning_rate=1e-3,3e-3 --set architecture.d_hidden=64
    fa-registry audit --study digits --set learning_rate=1e-3,3e-3 --set architecture.d_hidden=64
"""
WAIVERS = f"""
## waivers.toml

This file lists findings that do not count. Each listed finding becomes `waived` with its reason, and the verdict is at best a
WARN. `audit` uses only the file of `--waivers FILE` or, without this option, the file that the study names
(`waivers = "waivers.toml"`). A waiver names a run, by at least the first {LEAST_RUN} characters of its id, or a method by its
label, such as `dfa+pen λ=0.01`. A waiver has no effect after its last day, or if no audited run or rule matches the waiver.
The audit reports such waivers.

```toml
[[waiver]]
rule = "D3"
method = "dfa"
reason = "the negative control of our tutorial"
author = "Jane Doe"
date = 2026-11-20
expiry = 2027-05-31
```
"""
EDITION = """
## An edition

An edition contains the rules of an audit. The option `--edition ours.toml` selects the edition of this file, and
`--edition ours.toml:lenient` its variant. The built-in editions are listed by `fa-registry list editions`;
[2026-12](../fa_registry/protocol/editions/2026-12.toml) uses nearly every key.

```toml
name = "ours"
title = "Scale and depth, at our limits"
source = "our group, 2026"
based_on = "2026-12"
fail_if = [["SCALE"], ["D3"]]

[labels]
warn = "LOOK"

[[rule]]
code = "SCALE"
title = "scale stability"
quantity = "growth"
take = "max_over_sites"
fires = "above"
threshold = 20.0
unit = "ratio of ‖h_l‖ to ‖h_{l-1}‖"
source = "our group"
rationale = "beyond this our optimiser diverges within the first epochs"

[[rule.also]]
quantity = "h_norm"
take = "last_site"
fires = "above"
threshold = 100.0
unit = "‖h_L‖"
clear = "SMALL"

[rule.guard]
quantity = "fidelity"
take = "last_site"
fires = "below"
threshold = 0.99
unit = "cosine of g_L in float32 and float64"
fired = "NOISY"

[[rule]]
code = "D3"
title = "depth utility"
judge = "seeds_margin"
quantity = "accuracy"
take = "scalar"
reference = "accuracy"
fires = "below_reference_plus"
threshold = 1.0
unit = "percentage points above the frozen controls, paired by seed"
source = "arXiv 2606.21126, D3"
rationale = "a trained block must be worth more than a random one"

[variant.lenient]
fail_if = [["SCALE", "D3"]]

[[variant.lenient.rule]]
code = "SCALE"
threshold = 50.0
```
"""
VARIANT = """
### [variant.NAME]

A variant can change any key of the edition. A table `[[variant.NAME.rule]]` can change any key of the rule with the same `code`.
"""
OPTIONS = """
## Option

The card of a method or an architecture declares its `options`, name → Option. Options are set by `--set method.NAME=VALUE`, or by
`method_options` and `architecture_options` of a study. A wrong name or value is rejected before anything is trained.

<!-- runs -->
```python
from fa_registry.records import Option

options = {
    "rank": Option(4, "number of columns of the feedback that are kept", "Doe 2026, section 3", least=1),
    "decay": Option(0.5, "fraction of the moving average that is kept per step", above=0.0),
    "start": Option("random", "how B is initialised", choices=("random", "orthogonal")),
}
```
"""


def files_reference() -> str:
    """Return the text of docs/reference-files.md."""
    parts = [
        *(INTRODUCTION, STUDY, _keys(StudyTable)),
        *(
            "\n### [[grid]]\n\nEvery combination of the values in the lists of a grid is trained.\n",
            _keys(Grid, needed=LISTS),
        ),
        *("\n### [recipe]\n", _recipe()),
        *("\n### [controls]\n", _named(_controls(), "control")),
        *(WAIVERS, _keys(Waiver, OF_A_WAIVER, [name for name, key in OF_A_WAIVER.items() if _default(key) == NEEDED])),
        *(EDITION, _keys(EditionFile)),
        *("\n### [[rule]]\n", _keys(Rule)),
        *(
            "\n### Condition\n\nThe keys of `[[rule.either]]`, `[[rule.also]]`, `[rule.guard]` and `[rule.guard_also]`.\n",
            _keys(Condition),
        ),
        *("\n### FarSeed\n", _keys(FarSeed)),
        VARIANT,
        *(
            "\n### take\n",
            _named({"scalar": "The value of a metric that has one value per run.", **_statement(TAKES)}, "take"),
        ),
        *(
            "\n### fires\n",
            _named(_statement({name: operator.compare for name, operator in OPERATORS.items()}), "fires"),
        ),
        *("\n### judge\n", _named(_statement(JUDGES), "judge")),
        *(OPTIONS, _keys(Option)),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


def _keys(record: type, names: Iterable[str] = (), needed: Iterable[str] = ()) -> str:
    hints, text = typing.get_type_hints(record), text_below(record)
    fields = {field.name: field for field in dataclasses.fields(record)}
    rows = [
        _row(
            name,
            KINDS.get(name) or type_text(hints[name]),
            NEEDED if name in needed else _default(fields[name]),
            text[name],
        )
        for name in names or fields
    ]
    return "\n".join([KEYS, *rows])


def _recipe() -> str:
    rows = []
    for name in typing.get_args(RecipeField):
        record = Recipe if name in {field.name for field in dataclasses.fields(Recipe)} else RunSpec
        (field,) = (field for field in dataclasses.fields(record) if field.name == name)
        rows.append(_row(name, type_text(TYPES[name]), _default(field), text_below(record)[name]))
    return "\n".join([KEYS, *rows])


def _named(description: Mapping[str, str], heading: str) -> str:
    return "\n".join(
        [f"| {heading} | |\n|---|---|", *(f"| `{name}` | {cell(text)} |" for name, text in description.items())]
    )


def _statement(functions: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    return {name: first_line(function) for name, function in functions.items()}


def _controls() -> dict[str, str]:
    """Return a mapping control → description, from the docstring of training.controls."""
    descriptions = dict(re.findall(r"^(\w+?)(?:_K)?: (.+)$", controls.__doc__ or "", re.MULTILINE))
    return {name: descriptions[name] for name in CONTROLS}


def _row(name: str, values: str, default: str, text: str) -> str:
    return f"| `{name}` | {values} | {default} | {cell(text)} |"


def _default(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is not dataclasses.MISSING else NEEDED
    if field.default in ("", None, ()):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
