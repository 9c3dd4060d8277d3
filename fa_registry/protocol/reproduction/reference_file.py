"""Reader of reference.toml, which lists the published values of a study.

The fields of a table apply to all values in the table. A value may override them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, Problem, unknown_name_text
from fa_registry.field_types import Checked, Filled, Limits, Positive, Text
from fa_registry.records import Margin, Published, PublishedFigure, Reference, ReferenceSetting, Scalar

FILE = "reference.toml"
PASSED_ON = ("quantity", "method", "penalty", "control", "method_options", "epoch", "factor", "remark", "not_measured")
FORM = tuple(field.name for field in dataclasses.fields(Published))
FORMS = (("value",), ("mean", "std", "n"), ("values",), ("low", "high"), ("below",), ("above",), ("never",))
SIZES = ("value", "of_std", "relative")
SITES = ("last", "mid")
Problems = Iterator[tuple[str, str]]  # name of the wrong field, and the problem


def load_reference(folder: Path) -> Reference:
    """Read the published values of a study, including studies in the field `also`.

    A value that occurs several times, for example in two files, is included once.

    Args:
        folder: folder of the study. The studies in `also` are in neighbouring folders.

    Raises:
        InvalidFields: lists every problem of the file and of the files in its field `also`.
    """
    problems: list[Problem] = []
    files: list[ReferenceFile] = []
    digests: list[str] = []
    pending, visited = [folder], set()
    while pending:
        study_folder = pending.pop(0)
        path = study_folder / FILE
        if study_folder.name in visited:
            continue
        visited.add(study_folder.name)
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            found = jsonio.describe_value(study_folder.name)
            problems.append(Problem(("also",), f"expected the name of a study with a {FILE}, found {found}"))
            continue
        try:
            toml = jsonio.read_toml(path, f"{study_folder.name}/{FILE}")
        except InvalidFields as error:
            problems += error.problems
            continue
        raw = toml.table
        if isinstance(raw.get("table"), list):
            raw["table"] = [_with_shared_fields(table) for table in raw["table"]]
        file, faults = jsonio.try_decode(ReferenceFile, raw)
        problems += map(toml.located, faults)
        if file:
            pending += [folder.parent / name for name in file.also]
            files.append(file)
            digests.append(toml.digest)
    if problems:
        raise InvalidFields(f"reference of study {folder.name}", problems)
    figures: list[PublishedFigure] = []
    for file in files:
        entries = (_figure(entry, file) for table in file.table for entry in table.figures)
        figures += [figure for figure in entries if figure not in figures]
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    remarks = dict.fromkeys(remark for file in files for remark in file.remarks)
    return Reference(folder.name, files[0].title, digest, tuple(figures), tuple(remarks))


def _figure(entry: FigureEntry, file: ReferenceFile) -> PublishedFigure:
    published = Published(**{name: getattr(entry, name) for name in entry.form})
    return PublishedFigure(
        **{name: getattr(entry, name) for name in PASSED_ON},
        published=published,
        margin=_margin(file.margin.get(entry.margin), published),
        setting=file.setting.get(entry.setting),
        site=str(entry.site),
        rule=entry.rule or "",
        source=f"{entry.source or file.source}; {entry.where}",
        not_at_hand=entry.not_at_hand or "",
    )


def _margin(fields: MarginFields | None, published: Published) -> Margin:
    if published == Published():
        return Margin(0.0, why="there is no published value to test against")
    if fields is None:
        return Margin(0.0, why="a published bound needs no margin")
    centre = published.value if published.mean is None else published.mean
    size = fields.value or (fields.of_std or 0) * (published.std or 0) or (fields.relative or 0) * abs(centre)
    return Margin(float(size), fields.scale, fields.why)


@dataclass(frozen=True)
class MarginFields(Checked):
    """A table `[margin.NAME]`: size of a margin, in one of the fields SIZES, and its reason."""

    why: Text
    value: Positive | None = None
    of_std: Positive | None = None
    relative: Positive | None = None
    scale: Literal["linear", "log10"] = "linear"

    def field_problems(self) -> Problems:
        """Yield the name of each wrong field, with the problem."""
        sizes = [name for name in SIZES if getattr(self, name) is not None]
        if len(sizes) != 1:
            yield "", f"expected exactly one of {', '.join(SIZES)}, found {' and '.join(sizes) or 'none'}"
        if self.scale == "log10" and self.value is None:
            yield "", "expected the field `value`, in decades, because the scale is log10"


@dataclass(frozen=True)
class FigureFields(Published):
    """Fields of a published value. A `[[table]]` may contain them for all of its values."""

    std: Annotated[float, Limits(ge=0)] | None = None
    n: Annotated[int, Limits("at least 2 (for the result of one run, use the field `value`)", ge=2)] | None = None
    values: Annotated[tuple[float, ...], Limits(min_length=2)] | None = None
    never: bool | None = None
    quantity: str = ""
    method: str = ""
    penalty: float = 0.0
    control: str = "none"
    method_options: Mapping[str, Scalar] = field(default_factory=dict)
    setting: str = ""
    site: str | int = ""
    epoch: int | None = None
    rule: Literal["D1", "D2"] | None = None
    margin: str = ""
    factor: Positive = 1.0
    source: str = ""
    where: str = ""
    remark: str = ""
    not_measured: str = ""
    not_at_hand: str | None = None


@dataclass(frozen=True)
class FigureEntry(FigureFields, Checked):
    """An entry of `figures`, completed with the fields of its table."""

    @property
    def form(self) -> frozenset[str]:
        """The names of the fields that contain the published value."""
        return frozenset(name for name in FORM if getattr(self, name) is not None)

    def field_problems(self) -> Problems:
        """Yield the name of each wrong field, with the problem."""
        needed = ("quantity", "method", "where", *(() if self.not_measured else ("setting",)))
        yield from ((name, "missing") for name in needed if not getattr(self, name))
        yield from self._form_problems() if self.not_at_hand is None else self._absence_problems()
        is_bound = self.below is not None or self.above is not None
        if not (self.not_measured or is_bound or self.margin or self.not_at_hand is not None):
            yield "margin", "missing"
        if self.site not in ("", *SITES) and not (isinstance(self.site, int) and self.site >= 0):
            yield "site", f"{unknown_name_text('site', self.site, SITES)}, or a number of a site"
        if (self.quantity == "first_fire") != bool(self.rule):
            yield "rule", "required for the metric first_fire, and not allowed for other metrics"
        if self.never and not self.rule:
            yield "never", "only allowed for the metric first_fire"

    def _absence_problems(self) -> Problems:
        """Yield the problems of a published value that is not available."""
        if self.form:
            found = ", ".join(sorted(self.form))
            yield "not_at_hand", f"not allowed together with a published value, found {found}"
        if not self.not_at_hand:
            yield "not_at_hand", "expected the reason, found an empty text"
        if self.not_measured:
            yield "not_at_hand", "not allowed together with not_measured"

    def _form_problems(self) -> Problems:
        """Yield the problems of the published value itself."""
        if self.form not in map(frozenset, FORMS):
            forms = "; ".join(" with ".join(form) for form in FORMS)
            found = ", ".join(sorted(self.form)) or "none"
            yield "", f"expected the published value in one form ({forms}), found {found}"
        elif self.never is False:
            yield "never", "expected true, found False"
        elif self.low is not None and self.low >= self.high:
            yield "low", f"expected less than high = {self.high:g}, found {self.low:g}"

    def margin_problems(self, margin: MarginFields) -> Problems:
        """Yield the problems that prevent a computation of the margin."""
        if margin.of_std is not None and not (self.std or 0) > 0:
            yield "margin", f"{self.margin} is a multiple of std, but there is no std above 0"
        if margin.relative is not None and not (self.value or self.mean):
            yield "margin", f"{self.margin} is a fraction of value or mean, but both are missing or 0"
        if margin.scale == "log10":
            if self.std is not None:
                yield "std", "not allowed on scale log10; use the field `values` or `value` instead"
            numbers = (self.value, self.low, self.high, self.below, self.above, *(self.values or ()))
            for number in numbers:
                if number is not None and number <= 0:
                    yield "", f"expected numbers above 0 on scale log10, found {number:g}"


@dataclass(frozen=True)
class TableFields(FigureFields):
    """A table `[[table]]`: fields for all of its values, and the values."""

    figures: Filled[FigureEntry] = field(kw_only=True)


@dataclass(frozen=True)
class ReferenceFile(Checked):
    """Content of a reference.toml.

    Every wrong field is an error, because an undetected mistake would test the wrong value.
    """

    title: Text
    source: Text
    remarks: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    setting: Mapping[str, ReferenceSetting] = field(default_factory=dict)
    margin: Mapping[str, MarginFields] = field(default_factory=dict)
    table: tuple[TableFields, ...] = ()

    def field_problems(self) -> Problems:
        """Yield the problems of the names of settings and margins in the values."""
        for index, table in enumerate(self.table):
            for position, entry in enumerate(table.figures):
                location = f"table[{index}].figures[{position}]"
                for name, known in (("setting", self.setting), ("margin", self.margin)):
                    value = getattr(entry, name)
                    if value and value not in known:
                        yield f"{location}.{name}", unknown_name_text(name, value, known)
                if entry.margin in self.margin:
                    for name, problem in entry.margin_problems(self.margin[entry.margin]):
                        yield f"{location}.{name}".rstrip("."), problem


def _with_shared_fields(table: Any) -> Any:
    """Return a raw `[[table]]` whose figures contain the fields of the table.

    If these fields are wrong, the table is unchanged. Otherwise every figure would repeat the problems of the table.
    """
    if not isinstance(table, dict) or not isinstance(table.get("figures"), list):
        return table
    shared = {name: value for name, value in table.items() if name != "figures"}
    if jsonio.try_decode(FigureFields, shared)[1]:
        return table
    figures = [{**shared, **entry} if isinstance(entry, dict) else entry for entry in table["figures"]]
    return {**table, "figures": figures}
