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

    Equal values count once.

    Args:
        folder: folder of the study. The studies in `also` are in neighbouring folders.

    Raises:
        InvalidFields: lists every problem of all these files.
    """
    problems: list[str] = []
    figures: dict[str, list[PublishedFigure]] = {}
    remarks: list[str] = []
    digests: list[str] = []
    title = ""
    for path, digest, raw in _files(folder, problems):
        faults = [f"{path.parent.name}/{FILE} {problem}" for problem in problems_of(raw)]
        problems += faults
        title = title or str(raw.get("title", ""))
        if not faults:
            figures[path.parent.name] = list(_figures(raw))
            remarks += raw.get("remarks", [])
        digests.append(digest)
    if problems:
        raise InvalidFields(f"reference of study {folder.name}", problems)
    distinct: list[PublishedFigure] = []
    for figure in (figure for figures_of_file in figures.values() for figure in figures_of_file):
        if figure not in distinct:
            distinct.append(figure)
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return Reference(folder.name, title, digest, tuple(distinct), tuple(dict.fromkeys(remarks)))


def _files(folder: Path, problems: list[str]) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Yield each reference.toml once: that of the folder, then those in `also`.

    Problems in reading a file are added to `problems`.
    """
    waiting, seen = [folder], set()
    while waiting:
        place = waiting.pop(0)
        path = place / FILE
        if place.name in seen:
            continue
        seen.add(place.name)
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            problems.append(
                f"also: expected the name of a study with a {FILE}, found {jsonio.describe_value(place.name)}"
            )
            continue
        try:
            raw, digest = jsonio.read_toml(path, f"{place.name}/{FILE}")
        except InvalidFields as error:
            problems += [f"{place.name}/{FILE}: {problem}" for problem in error.problems]
            continue
        also = raw.get("also", [])
        waiting += [folder.parent / name for name in also if isinstance(name, str)] if isinstance(also, list) else []
        yield path, digest, raw


def _figures(raw: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    settings = {name: ReferenceSetting(**table) for name, table in raw.get("setting", {}).items()}
    for table in raw.get("table", []):
        shared = {name: value for name, value in table.items() if name in FIGURE}
        for own in table["figures"]:
            yield _figure({**shared, **own}, settings, raw)


def _figure(
    table: Mapping[str, Any], settings: Mapping[str, ReferenceSetting], raw: Mapping[str, Any]
) -> PublishedFigure:
    published = Published(**{name: _plain(table[name], FORM[name]) for name in FORM if name in table})
    passed = {name: table[name] for name in PASSED_ON if name in table}
    for name in ("penalty", "factor"):
        passed |= {name: float(passed[name])} if name in passed else {}
    return PublishedFigure(
        **passed,
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
        where = f"table[{index}]"
        problems += fields(where, table, TABLE, ("figures",))
        for place, own in enumerate(_list(_dict(table).get("figures"))):
            problems += _figure_problems(f"{where}.figures[{place}]", own, _dict(table), raw)
    return problems


def fields(where: str, table: Any, known: Mapping[str, type], needed: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a problem for every unknown, missing or wrongly typed key of a table.

    Args:
        where: location of the table in the file.
        table: the table.
        known: allowed keys and their types.
        needed: keys that must not be missing or empty.
    """
    if not isinstance(table, Mapping):
        yield f"{where}: expected a table, found {jsonio.describe_value(table)}"
        return
    before = f"{where}." if where else ""
    for name, value in table.items():
        if name not in known:
            yield unknown_field_text(before, "key", name, known)
        elif not _is(value, known[name]) and not (name == "site" and _is(value, int) and value >= 0):
            yield f"{before}{name}: expected {KINDS[known[name]]}, found {jsonio.describe_value(value)}"
    yield from (f"{before}{name}: missing" for name in needed if table.get(name) in (None, "", []))


def _margin_problems(where: str, table: Any) -> Iterator[str]:
    yield from fields(where, table, MARGIN, ("why",))
    table = _dict(table)
    given = [name for name in SIZES if name in table]
    if len(given) != 1:
        yield f"{where}: expected exactly one of {', '.join(SIZES)}, found {' and '.join(given) or 'none'}"
    elif _is(table[given[0]], float) and table[given[0]] <= 0:
        yield f"{where}.{given[0]}: expected more than 0, found {table[given[0]]:g}"
    yield from _choice(where, "scale", table, SCALES)
    if table.get("scale") == "log10" and "value" not in table:
        yield f"{where}: expected the field value, in decades, because the scale is log10"


def _figure_problems(where: str, own: Any, table: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of one published value, including the fields of its table."""
    yield from fields(where, own, FIGURE)
    shared = {name: value for name, value in table.items() if name in FIGURE}
    figure = {**shared, **_dict(own)}
    tested = not figure.get("not_measured")
    needed = ("quantity", "method", "where", *(("setting",) if tested else ()))
    yield from (f"{where}.{name}: missing" for name in needed if not figure.get(name))
    yield from _absent(where, figure) if "not_at_hand" in figure else _form(where, figure)
    for name in ("setting", "margin"):
        if isinstance(figure.get(name), str) and figure[name] not in _dict(raw.get(name)):
            yield f"{where}.{name}: {unknown_name_text(name, figure[name], _dict(raw.get(name)))}"
    bound = any(name in figure for name in BOUNDS)
    if tested and not bound and "margin" not in figure and "not_at_hand" not in figure:
        yield f"{where}.margin: missing"
    if isinstance(figure.get("site"), str):
        yield from _choice(where, "site", figure, SITES)
    if (figure.get("quantity") == "first_fire") != ("rule" in figure):
        yield f"{where}.rule: required for the metric first_fire, and not allowed for other metrics"
    yield from _choice(where, "rule", figure, RULES)
    if figure.get("never") and "rule" not in figure:
        yield f"{where}.never: only allowed for the metric first_fire"
    margin = figure["margin"] if isinstance(figure.get("margin"), str) else ""
    yield from _size(where, figure, _dict(_dict(raw.get("margin")).get(margin)))


def _absent(where: str, figure: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a value with `not_at_hand`.

    Such a value must have a reason and no published value.
    """
    given = sorted({name for name in FORM if name in figure})
    if given:
        yield f"{where}.not_at_hand: not allowed together with a published value, found {', '.join(given)}"
    if figure["not_at_hand"] == "":
        yield f"{where}.not_at_hand: expected the reason, found an empty text"
    if figure.get("not_measured"):
        yield f"{where}.not_at_hand: not allowed together with not_measured"


def _form(where: str, figure: Mapping[str, Any]) -> Iterator[str]:
    given = {name for name in FORM if name in figure}
    if given not in [set(form) for form in FORMS]:
        known = "; ".join(" with ".join(form) for form in FORMS)
        yield f"{where}: expected the published value in one form ({known}), found {', '.join(sorted(given)) or 'none'}"
        return
    if given == {"values"}:
        values = _list(figure["values"])
        if len(values) < 2 or not all(_is(value, float) for value in values):
            yield f"{where}.values: expected two or more finite numbers, found {jsonio.describe_value(figure['values'])}"
    ends = [figure[name] for name in ("low", "high") if name in given and _is(figure[name], float)]
    if len(ends) == 2 and ends[0] >= ends[1]:
        yield f"{where}.low: expected less than high = {ends[1]:g}, found {ends[0]:g}"
    if "std" in given and _is(figure["std"], float) and figure["std"] < 0:
        yield f"{where}.std: expected at least 0, found {figure['std']:g}"
    if "n" in given and _is(figure["n"], int) and figure["n"] < 2:
        yield f"{where}.n: expected at least 2, found {figure['n']}; for the result of one run, use the field value"
    if given == {"never"} and figure["never"] is not True:
        yield f"{where}.never: expected true, found {jsonio.describe_value(figure['never'])}"


def _size(where: str, figure: Mapping[str, Any], margin: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems that prevent the computation of the margin of a value."""
    if "of_std" in margin and not (_is(figure.get("std"), float) and figure["std"] > 0):
        yield f"{where}.margin: {figure['margin']} is a multiple of std, but there is no std above 0"
    if "relative" in margin and not any(figure.get(name) for name in ("value", "mean")):
        yield f"{where}.margin: {figure['margin']} is a fraction of value or mean, but there is no value or mean other than 0"
    if margin.get("scale") == "log10":
        if "std" in figure:
            yield f"{where}.std: not allowed on scale log10; use the field values or value instead"
        numbers = [figure.get(name) for name in ("value", "low", "high", *BOUNDS)] + _list(figure.get("values"))
        wrong = [number for number in numbers if _is(number, float) and number <= 0]
        yield from (f"{where}: expected numbers above 0 on scale log10, found {number:g}" for number in wrong)
    if _is(figure.get("factor"), float) and figure["factor"] <= 0:
        yield f"{where}.factor: expected more than 0, found {figure['factor']:g}"


def _choice(where: str, name: str, table: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[str]:
    if isinstance(table.get(name), str) and table[name] not in known:
        yield f"{where}.{name}: {unknown_name_text(name, table[name], known)}"


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return jsonio.is_finite(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
