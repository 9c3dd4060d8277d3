"""reference.toml → Reference. A table says once what its figures share; a figure's own fields come before the table's."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fa_registry.errors import InvalidFields
from fa_registry.protocol.reproduction.checking import FIGURE, FORM, problems_of
from fa_registry.records import Margin, Published, PublishedFigure, Reference, ReferenceSetting

FILE = "reference.toml"
PASSED_ON = ("quantity", "method", "penalty", "control", "method_options", "epoch", "rule", "factor", "remark")


def load_reference(folder: Path) -> Reference:
    """The reference of the study in `folder`, and of the studies beside it that its `also` names; a figure counts once.

    Raises InvalidFields that names everything wrong in all of these files.
    """
    problems: list[str] = []
    figures: dict[str, list[PublishedFigure]] = {}
    remarks: list[str] = []
    digests: list[str] = []
    title = ""
    for path, data, raw in _files(folder, problems):
        faults = [f"{path.parent.name}/{FILE} {problem}" for problem in problems_of(raw)]
        problems += faults
        title = title or str(raw.get("title", ""))
        if not faults:
            figures[path.parent.name] = list(_figures(raw))
            remarks += raw.get("remarks", [])
        digests.append(hashlib.sha256(data).hexdigest())
    if problems:
        raise InvalidFields(f"reference of study {folder.name}", problems)
    distinct: list[PublishedFigure] = []
    for figure in (figure for figures_of_file in figures.values() for figure in figures_of_file):
        if figure not in distinct:
            distinct.append(figure)
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return Reference(folder.name, title, digest, tuple(distinct), tuple(dict.fromkeys(remarks)))


def _files(folder: Path, problems: list[str]) -> Iterator[tuple[Path, bytes, Mapping[str, Any]]]:
    """The folder's own file, then those it names, each once, in order. What cannot be read is added to `problems`."""
    waiting, seen = [folder], set()
    while waiting:
        place = waiting.pop(0)
        path = place / FILE
        if place.name in seen:
            continue
        seen.add(place.name)
        try:
            data = path.read_bytes()
            raw = tomllib.loads(data.decode("utf-8"))
        except FileNotFoundError:
            problems.append(f"also: expected the name of a study with a {FILE}, found {place.name!r}")
            continue
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            problems.append(f"{place.name}/{FILE}: not TOML: {error}")
            continue
        also = raw.get("also", [])
        waiting += [folder.parent / name for name in also if isinstance(name, str)] if isinstance(also, list) else []
        yield path, data, raw


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
    )


def _margin(table: Mapping[str, Any] | None, published: Published) -> Margin:
    if table is None:
        return Margin(0.0, why="a bound is its own margin")
    centre = published.value if published.mean is None else published.mean
    size = table.get("value") or table.get("of_std", 0) * (published.std or 0) or table.get("relative", 0) * abs(centre)
    return Margin(float(size), table.get("scale", "linear"), table["why"])


def _plain(value: Any, kind: type) -> Any:
    """Numbers as floats whatever way they were typed, so that a record has one text."""
    return tuple(map(float, value)) if kind is list else kind(value)
