"""Reader of reference.toml, which lists the published values of a study.

The fields of a table apply to all values in the table. A value may override them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, unknown_field_text, unknown_name_text
from fa_registry.records import Margin, Published, PublishedFigure, Reference, ReferenceSetting

FILE = "reference.toml"
PASSED_ON = ("quantity", "method", "penalty", "control", "method_options", "epoch", "rule", "factor", "remark")


def load_reference(folder: Path) -> Reference:
    """Read the published values of a study, including studies in the field `also`.

    A value that occurs several times, for example in two files, is included once.

    Args:
        folder: folder of the study. The studies in `also` are in neighbouring folders.

    Raises:
        InvalidFields: lists every problem of all these files.
    """
    problems: list[str] = []
    entries: dict[str, list[PublishedFigure]] = {}
    remarks: list[str] = []
    digests: list[str] = []
    title = ""
    for path, digest, raw in _files(folder, problems):
        faults = [f"{path.parent.name}/{FILE} {problem}" for problem in problems_of(raw)]
        problems += faults
        title = title or str(raw.get("title", ""))
        if not faults:
            entries[path.parent.name] = list(_figures(raw))
            remarks += raw.get("remarks", [])
        digests.append(digest)
    if problems:
        raise InvalidFields(f"reference of study {folder.name}", problems)
    distinct: list[PublishedFigure] = []
    for entry in (figure for figures_of_file in entries.values() for figure in figures_of_file):
        if entry not in distinct:
            distinct.append(entry)
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return Reference(folder.name, title, digest, tuple(distinct), tuple(dict.fromkeys(remarks)))


def _files(folder: Path, problems: list[str]) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Yield path, digest and content of each reference.toml once.

    The file of `folder` comes first, then the files of the studies in `also`. Problems in reading a file are added to `problems`.
    """
    pending, visited = [folder], set()
    while pending:
        study_folder = pending.pop(0)
        path = study_folder / FILE
        if study_folder.name in visited:
            continue
        visited.add(study_folder.name)
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            problems.append(
                f"also: expected the name of a study with a {FILE}, found {jsonio.describe_value(study_folder.name)}"
            )
            continue
        try:
            raw, digest = jsonio.read_toml(path, f"{study_folder.name}/{FILE}")
        except InvalidFields as error:
            problems += [f"{study_folder.name}/{FILE}: {problem}" for problem in error.problems]
            continue
        also = raw.get("also", [])
        pending += [folder.parent / name for name in also if isinstance(name, str)] if isinstance(also, list) else []
        yield path, digest, raw


def _figures(raw: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    settings = {name: ReferenceSetting(**table) for name, table in raw.get("setting", {}).items()}
    for table in raw.get("table", []):
        shared = {name: value for name, value in table.items() if name in FIGURE}
        for raw_entry in table["figures"]:
            yield _figure({**shared, **raw_entry}, settings, raw)


def _figure(
    table: Mapping[str, Any], settings: Mapping[str, ReferenceSetting], raw: Mapping[str, Any]
) -> PublishedFigure:
    published = Published(**{name: _plain(table[name], FORM[name]) for name in FORM if name in table})
    passed_fields = {name: table[name] for name in PASSED_ON if name in table}
    for name in ("penalty", "factor"):
        passed_fields |= {name: float(passed_fields[name])} if name in passed_fields else {}
    return PublishedFigure(
        **passed_fields,
        published=published,
        margin=_margin(raw.get("margin", {}).get(table.get("margin")), published),
        setting=settings.get(table.get("setting", "")),
        site=str(table.get("site", "")),
        source=f"{table.get('source', raw['source'])}; {table['where']}",
        not_measured=table.get("not_measured", ""),
        not_at_hand=table.get("not_at_hand", ""),
    )


def _margin(table: Mapping[str, Any] | None, published: Published) -> Margin:
    if published == Published():
        return Margin(0.0, why="there is no published value to test against")
    if table is None:
        return Margin(0.0, why="a published bound needs no margin")
    centre = published.value if published.mean is None else published.mean
    size = table.get("value") or table.get("of_std", 0) * (published.std or 0) or table.get("relative", 0) * abs(centre)
    return Margin(float(size), table.get("scale", "linear"), table["why"])


def _plain(value: Any, kind: type) -> Any:
    """Convert numbers to floats, because a record must have one canonical text."""
    return tuple(map(float, value)) if kind is list else kind(value)


# Schema of reference.toml. Every wrong field is an error, because an undetected mistake would test the wrong value.
TOP = {"title": str, "source": str, "remarks": list, "also": list, "setting": dict, "margin": dict, "table": list}
SETTING = {
    "architecture": str,
    "dataset": str,
    "epochs": int,
    "architecture_options": dict,
    "recipe": dict,
    "assumed": str,
}
MARGIN = {"value": float, "of_std": float, "relative": float, "scale": str, "why": str}
SIZES = ("value", "of_std", "relative")
FORM = {
    "value": float,
    "mean": float,
    "std": float,
    "n": int,
    "values": list,
    "low": float,
    "high": float,
    "below": float,
    "above": float,
    "never": bool,
}
FORMS = (("value",), ("mean", "std", "n"), ("values",), ("low", "high"), ("below",), ("above",), ("never",))
BOUNDS = ("below", "above")
FIGURE = {
    **FORM,
    "quantity": str,
    "method": str,
    "penalty": float,
    "control": str,
    "method_options": dict,
    "setting": str,
    "site": str,
    "epoch": int,
    "rule": str,
    "margin": str,
    "factor": float,
    "source": str,
    "where": str,
    "remark": str,
    "not_measured": str,
    "not_at_hand": str,
}
TABLE = {**FIGURE, "figures": list}
SITES = ("last", "mid", "deep")
SCALES = ("linear", "log10")
RULES = ("D1", "D2")
KINDS = {
    str: "text",
    float: "a finite number",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def problems_of(raw: Mapping[str, Any]) -> list[str]:
    """Return all problems of a reference file as sentences.

    Each sentence begins with the location of the problem in the file.
    """
    problems = list(fields("", raw, TOP, ("title", "source")))
    for name in ("remarks", "also"):
        if not all(isinstance(item, str) for item in _list(raw.get(name))):
            problems.append(f"{name}: expected texts, found {jsonio.describe_value(raw[name])}")
    for name, setting in _dict(raw.get("setting")).items():
        problems += fields(f"setting.{name}", setting, SETTING, ("architecture", "dataset", "epochs"))
    for name, margin in _dict(raw.get("margin")).items():
        problems += _margin_problems(f"margin.{name}", margin)
    for index, table in enumerate(_list(raw.get("table"))):
        location = f"table[{index}]"
        problems += fields(location, table, TABLE, ("figures",))
        for position, raw_entry in enumerate(_list(_dict(table).get("figures"))):
            problems += _figure_problems(f"{location}.figures[{position}]", raw_entry, _dict(table), raw)
    return problems


def fields(location: str, table: Any, key_types: Mapping[str, type], required: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a problem for every unknown, missing or wrongly typed key of a table.

    Args:
        location: location of the table in the file.
        key_types: allowed keys and their types.
        required: keys that must not be missing or empty.
    """
    if not isinstance(table, Mapping):
        yield f"{location}: expected a table, found {jsonio.describe_value(table)}"
        return
    prefix = f"{location}." if location else ""
    for name, value in table.items():
        if name not in key_types:
            yield unknown_field_text(prefix, "key", name, key_types)
        elif not _is(value, key_types[name]) and not (name == "site" and _is(value, int) and value >= 0):
            yield f"{prefix}{name}: expected {KINDS[key_types[name]]}, found {jsonio.describe_value(value)}"
    yield from (f"{prefix}{name}: missing" for name in required if table.get(name) in (None, "", []))


def _margin_problems(location: str, table: Any) -> Iterator[str]:
    yield from fields(location, table, MARGIN, ("why",))
    table = _dict(table)
    size_fields = [name for name in SIZES if name in table]
    if len(size_fields) != 1:
        yield f"{location}: expected exactly one of {', '.join(SIZES)}, found {' and '.join(size_fields) or 'none'}"
    elif _is(table[size_fields[0]], float) and table[size_fields[0]] <= 0:
        yield f"{location}.{size_fields[0]}: expected more than 0, found {table[size_fields[0]]:g}"
    yield from _choice(location, "scale", table, SCALES)
    if table.get("scale") == "log10" and "value" not in table:
        yield f"{location}: expected the field `value`, in decades, because the scale is log10"


def _figure_problems(location: str, raw_entry: Any, table: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of one published value, including the fields of its table."""
    yield from fields(location, raw_entry, FIGURE)
    shared = {name: value for name, value in table.items() if name in FIGURE}
    entry = {**shared, **_dict(raw_entry)}
    is_tested = not entry.get("not_measured")
    required = ("quantity", "method", "where", *(("setting",) if is_tested else ()))
    yield from (f"{location}.{name}: missing" for name in required if not entry.get(name))
    yield from _absent(location, entry) if "not_at_hand" in entry else _form(location, entry)
    for name in ("setting", "margin"):
        if isinstance(entry.get(name), str) and entry[name] not in _dict(raw.get(name)):
            yield f"{location}.{name}: {unknown_name_text(name, entry[name], _dict(raw.get(name)))}"
    is_bound = any(name in entry for name in BOUNDS)
    if is_tested and not is_bound and "margin" not in entry and "not_at_hand" not in entry:
        yield f"{location}.margin: missing"
    if isinstance(entry.get("site"), str):
        yield from _choice(location, "site", entry, SITES)
    if (entry.get("quantity") == "first_fire") != ("rule" in entry):
        yield f"{location}.rule: required for the metric first_fire, and not allowed for other metrics"
    yield from _choice(location, "rule", entry, RULES)
    if entry.get("never") and "rule" not in entry:
        yield f"{location}.never: only allowed for the metric first_fire"
    margin = entry["margin"] if isinstance(entry.get("margin"), str) else ""
    yield from _size(location, entry, _dict(_dict(raw.get("margin")).get(margin)))


def _absent(location: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a value with `not_at_hand`.

    The field must contain the reason why the published value is not available, and the entry must not contain a published value.
    """
    form_fields = sorted({name for name in FORM if name in entry})
    if form_fields:
        yield f"{location}.not_at_hand: not allowed together with a published value, found {', '.join(form_fields)}"
    if entry["not_at_hand"] == "":
        yield f"{location}.not_at_hand: expected the reason, found an empty text"
    if entry.get("not_measured"):
        yield f"{location}.not_at_hand: not allowed together with not_measured"


def _form(location: str, entry: Mapping[str, Any]) -> Iterator[str]:
    form_fields = {name for name in FORM if name in entry}
    if form_fields not in [set(form) for form in FORMS]:
        forms = "; ".join(" with ".join(form) for form in FORMS)
        yield f"{location}: expected the published value in one form ({forms}), found {', '.join(sorted(form_fields)) or 'none'}"
        return
    if form_fields == {"values"}:
        values = _list(entry["values"])
        if len(values) < 2 or not all(_is(value, float) for value in values):
            yield f"{location}.values: expected two or more finite numbers, found {jsonio.describe_value(entry['values'])}"
    ends = [entry[name] for name in ("low", "high") if name in form_fields and _is(entry[name], float)]
    if len(ends) == 2 and ends[0] >= ends[1]:
        yield f"{location}.low: expected less than high = {ends[1]:g}, found {ends[0]:g}"
    if "std" in form_fields and _is(entry["std"], float) and entry["std"] < 0:
        yield f"{location}.std: expected at least 0, found {entry['std']:g}"
    if "n" in form_fields and _is(entry["n"], int) and entry["n"] < 2:
        yield f"{location}.n: expected at least 2, found {entry['n']}; for the result of one run, use the field `value`"
    if form_fields == {"never"} and entry["never"] is not True:
        yield f"{location}.never: expected true, found {jsonio.describe_value(entry['never'])}"


def _size(location: str, entry: Mapping[str, Any], margin: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems that prevent a computation of the margin of a value."""
    if "of_std" in margin and not (_is(entry.get("std"), float) and entry["std"] > 0):
        yield f"{location}.margin: {entry['margin']} is a multiple of std, but there is no std above 0"
    if "relative" in margin and not any(entry.get(name) for name in ("value", "mean")):
        yield f"{location}.margin: {entry['margin']} is a fraction of value or mean, but both are missing or 0"
    if margin.get("scale") == "log10":
        if "std" in entry:
            yield f"{location}.std: not allowed on scale log10; use the field `values` or `value` instead"
        numbers = [entry.get(name) for name in ("value", "low", "high", *BOUNDS)] + _list(entry.get("values"))
        nonpositive = [number for number in numbers if _is(number, float) and number <= 0]
        yield from (f"{location}: expected numbers above 0 on scale log10, found {number:g}" for number in nonpositive)
    if _is(entry.get("factor"), float) and entry["factor"] <= 0:
        yield f"{location}.factor: expected more than 0, found {entry['factor']:g}"


def _choice(location: str, name: str, table: Mapping[str, Any], choices: tuple[str, ...]) -> Iterator[str]:
    if isinstance(table.get(name), str) and table[name] not in choices:
        yield f"{location}.{name}: {unknown_name_text(name, table[name], choices)}"


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return jsonio.is_finite(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
