"""Filters that format numbers and escape untrusted text.

A filter raises an error for NaN and infinity, so a page never shows `nan`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from jinja2 import pass_context
from markupsafe import Markup

from fa_registry.analyses import AnalysisCell
from fa_registry.metrics import MARGIN_LABEL, Metric, label_of, metric_named, subject_of
from fa_registry.protocol.builtin_editions import SHIPPED, differences, provenance_of
from fa_registry.protocol.builtin_editions import describe_edition as describe_edition
from fa_registry.protocol.rules import load_edition
from fa_registry.records import EditionReference, Reading, Scalar
from fa_registry.reporting.view_models import Cell, Estimate, Number
from fa_registry.statistics import CONFIDENCE, level_text
from fa_registry.text_safety import escape_control

MINUS = "\u2212"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
UNITS = ("pct", "pp", "cos", "nats", "signed_nats")  # kinds whose numbers all have the same number of decimals
MARKDOWN_INLINE = re.compile(r"([\\`*_\[\]|~$])")  # $ begins a formula for pandoc and MLflow's pages
# Characters that open a heading, list item or rule at the start of a line. `80.0 %` and `−1.0` open none, so no escape is added.
MARKDOWN_BLOCK = re.compile(r"^(#|=|[+-](?=[\s-]|$)|\d{1,9}(?=[.)](?:\s|$)))")


def finite(value: Any) -> float:
    """Return the number if it is finite.

    Raises:
        ValueError: The number is NaN or infinite.
        TypeError: The value is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, found {type(value).__name__}; write a missing number with the na filter")
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value!r}; use Reading.of, which stores N/A and the reason")
    return value


def num(value: float, digits: int = 3) -> str:
    """Return the number with `digits` significant digits: 0.934, 12.5, 1,437.

    Very small and very large numbers are written with a power of ten.
    """
    number = finite(value)
    if isinstance(number, int):
        return f"{number:,}".replace("-", MINUS)
    if number == 0:
        return "0"
    if not 1e-3 <= abs(number) < 1e5:
        return sci(number, digits)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
    return f"{number:,.{decimals}f}".replace("-", MINUS)


def sci(value: float, digits: int = 3) -> str:
    """Return the number in scientific notation: 1.23×10⁻⁷."""
    number = finite(value)
    if number == 0:
        return "0"
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    return f"{mantissa}×10{str(int(exponent)).translate(SUPERSCRIPTS)}".replace("-", MINUS)


def pct(value: float, digits: int = 1) -> str:
    """Return a fraction as a percentage: 0.934 → 93.4 %."""
    return f"{finite(value) * 100:.{digits}f}\u00a0%".replace("-", MINUS)


def pp(value: float) -> str:
    """Return a difference in percentage points with its sign: +9.1 pp."""
    return f"{finite(value):+.1f}\u00a0pp".replace("-", MINUS)


def nats(value: float) -> str:
    """Return a loss in nats: 3.294 nats."""
    return f"{finite(value):.3f}\u00a0nats".replace("-", MINUS)


def signed_nats(value: float) -> str:
    """Return a difference of two losses with its sign: +0.080 nats."""
    return f"{finite(value):+.3f}\u00a0nats".replace("-", MINUS)


def exact(value: float) -> str:
    """Return a number with six significant digits, for a cosine near 1: 0.999999."""
    return num(value, 6)


def at_least(value: float) -> str:
    """Return a lower bound, rounded down to six decimals: 0.9999999999 → 0.999999."""
    return f"{Decimal(repr(finite(value))).quantize(Decimal('0.000001'), ROUND_FLOOR)}".replace("-", MINUS)


def cos(value: float) -> str:
    """Return a cosine with three decimals; a value that rounds to zero has no sign."""
    return f"{finite(value):z.3f}".replace("-", MINUS)


def compact(value: float) -> str:
    """Return a threshold or an axis tick in its shortest form: 50, 0.02, 10⁻⁷."""
    number = finite(value)
    if number == 0 or 1e-3 < abs(number) < 1e4:
        return f"{number:g}".replace("-", MINUS)
    mantissa, exponent = f"{number:e}".split("e")
    power = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return (power if float(mantissa) == 1 else f"{float(mantissa):g}×{power}").replace("-", MINUS)


def ci(interval: tuple[float, float], digits: int = 1) -> str:
    """Return an interval of fractions as percentages: 91.2 % to 94.0 %."""
    low, high = _ends(interval)
    return _spanned(pct(low, digits), pct(high, digits))


def error_parts(shares: tuple[float, float]) -> str:
    """Return the parts of a margin's error, and how much of it more seeds leave.

    Args:
        shares: share of the variance of the seeds, and of the test samples, as in `Finding.error_shares`.
    """
    seeds, samples = shares
    return (
        f"{100 * samples:.0f} % of its variance is from the test set and {100 * seeds:.0f} % from the seeds; no number of seeds "
        f"reduces its standard error below {100 * math.sqrt(samples):.0f} %"
    )


def between(interval: tuple[float, float], kind: str) -> str:
    """Return an interval in the format of its metric: +9.1 pp to +14.0 pp.

    Args:
        interval: (low, high).
        kind: Number format, a key of KINDS.
    """
    low, high = _ends(interval)
    ends, power = one_power(KINDS[kind], (low, high))
    return f"({_spanned(*ends)}){power}" if power else _spanned(KINDS[kind](low), KINDS[kind](high))


def brackets(interval: tuple[float, float], kind: str) -> str:
    """Return an interval without its unit, for a narrow column: [+9.1, +14.0].

    Raises:
        ValueError: As in `between`.
    """
    low, high = (bare(Reading(end), kind) for end in _ends(interval))
    return f"[{low}, {high}]"


def bare(value: Reading, kind: str) -> str:
    """Return a reading without its unit, for a column whose heading has the unit: 93.4."""
    return reading(value, kind).partition("\u00a0")[0]


def unit(kind: str) -> str:
    """Return the unit that a format writes after its numbers: %, pp, nats, or an empty text."""
    return KINDS[kind](1.0).partition("\u00a0")[2]


def _ends(interval: tuple[float, float]) -> tuple[float, float]:
    if finite(interval[0]) > finite(interval[1]):
        raise ValueError(f"expected low ≤ high, found {interval!r}")
    return interval


def _spanned(low: str, high: str) -> str:
    return f"{low} to {high}" if low != high else f"{low} to {high} (no spread at this precision)"


def na(reading: Reading) -> str:
    """Return the text for a missing number: `not finite` (NaN or infinite) or `N/A`."""
    if reading.value is not None:
        raise ValueError(
            f"expected a missing number for the filter na, found {reading}; write this number with num, sci or pct"
        )
    return "not finite" if reading.not_finite else "N/A"


def number(value: Number) -> str:
    """Return a number in the format of its kind, or the text for a missing number."""
    return reading(value.reading, value.kind)


def reading(value: Reading, kind: str) -> str:
    """Return a reading in the format `kind`, or the text for a missing number."""
    return na(value) if value.value is None else KINDS[kind](value.value)


def spread(estimate: Estimate) -> str:
    """Return mean ± standard deviation, or only the mean if there is one value.

    Examples: 93.4 ± 0.8 %; for a geometric mean 1,812 ×/÷ 1.13.
    """
    mean = number(estimate.mean)
    if estimate.mean.reading.value is None or estimate.std.value is None:
        return mean
    if estimate.average == "geometric":
        factor = num(estimate.std.value)
        # 1.00 would mean that all seeds agree
        factor_text = "<\u00a01.01" if factor == "1.00" and estimate.std.value > 1 else factor
        return f"{mean}\u00a0×/÷\u00a0{factor_text}"
    return plus_minus(estimate.mean.reading.value, estimate.std.value, estimate.kind)


def interval(estimate: Estimate) -> str:
    """Return the interval of a mean, or the reason why there is none.

    Example: `95 % interval 92.1 % to 94.3 % over seeds and test samples`.
    """
    if estimate.low.value is None or estimate.high.value is None:
        return estimate.low.reason or estimate.high.reason
    remark = f" ({estimate.remark})" if estimate.remark else ""
    ends = between((estimate.low.value, estimate.high.value), estimate.kind)
    return f"{level_text(CONFIDENCE)} interval {ends} over {estimate.over}{remark}"


def counted(estimate: Estimate, deviation: bool = True) -> str:
    """Return an estimate as `93.4 ± 0.8 %`, or `1,812 (2 of 3)` if a seed has no value."""
    text = spread(estimate) if deviation else number(estimate.mean)
    return f"{text} ({estimate.n} of {estimate.of})" if 0 < estimate.n < estimate.of else text


def cell(table_cell: Cell) -> str:
    """Return the mean in a table cell as text, with its standard deviation if the cell has one."""
    mean, deviation = table_cell.number, table_cell.deviation
    if not deviation:
        return number(mean)
    if mean.reading.value is None or deviation.reading.value is None:
        return f"{number(mean)}\u00a0±\u00a0{number(deviation)}"
    return plus_minus(mean.reading.value, deviation.reading.value, mean.kind)


def answer(cell: AnalysisCell, kind: str) -> str:
    """Return a cell of an analysis as text, without its interval.

    Examples: `never`, `rejects 2 of 3`, `0.120 (2 of 3)` if a seed has no value.
    """
    found = cell.reading
    if found is None or (cell.text and (found.value is None or (cell.n and not found.value))):
        return cell.text  # `accepts` instead of `accepts 0`
    text = reading(found, kind)
    if cell.text:
        return f"{cell.text} {text}" + (f" of {cell.n}" if cell.n else "")
    return f"{text} ({cell.n} of {cell.of})" if 0 < cell.n < cell.of else text


def plus_minus(mean: float, deviation: float, kind: str) -> str:
    """Return mean ± deviation with the same unit, power of ten and decimals."""
    write = KINDS[kind]
    if kind in UNITS:
        mean_text, _, unit = write(mean).partition("\u00a0")
        deviation_text = write(deviation).lstrip("+") if unit else write(deviation)
        return f"{mean_text}\u00a0±\u00a0{deviation_text}"
    (first, second), power = one_power(write, (mean, deviation))
    if not power:
        first = write(mean)
        decimals = len(first.partition(".")[2])
        second = f"{finite(deviation):,.{decimals}f}"
        if deviation > 0 and float(second.replace(",", "")) == 0:
            second = f"<\u00a0{10**-decimals:.{decimals}f}"  # `± 0.00` would mean that all seeds agree
    text = f"{first}\u00a0±\u00a0{second}"
    return f"({text}){power}" if power else text


def one_power(write: Callable[[float], str], values: Sequence[float]) -> tuple[tuple[str, ...], str]:
    """Write several numbers with one common power of ten, that of the largest number.

    Return the tuple (numbers, power), for example (2.00, 3.00) and ×10⁵. The power is an empty string if no number needs a power.
    """
    texts = [write(value) for value in values]
    powers = [text.partition("×10")[2] for text in texts]
    if not any(powers):
        return tuple(texts), ""
    exponent = math.floor(math.log10(max(map(abs, values))))
    scaled = (f"{value / 10.0**exponent:.2f}".replace("-", MINUS) for value in values)
    return tuple(scaled), f"×10{str(exponent).translate(SUPERSCRIPTS)}"


@pass_context  # otherwise Jinja2 would insert the text when compiling, before the page's escaping
def quantity(context: Any, name: str) -> Metric:
    """Return a metric of the catalogue by its key.

    The fields of a metric are, for example, symbol, description, heading and label.
    """
    return metric_named(name)


def short(run_id: str) -> str:
    """Return the first eight characters of a run id."""
    return escape_control(run_id[:8])


def brief(text: str, most: int = 160) -> str:
    """Cut a text for a heading to at most `most` characters.

    The page must also show the full text.
    """
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def scalar(value: Scalar | None) -> str:
    """Return a field of a rule as text; a missing field is a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return "—"
    return value if isinstance(value, str) else f"{value:.12g}"


PUBLISHED = "2026-05"  # the built-in edition of the published protocol
JUDGED_QUANTITIES = {
    "scale": label_of("growth"),
    "reference": "reference gradient",
    "depth": f"{MARGIN_LABEL} blocks",
}
EXPLANATIONS = ("unit", "source", "rationale")  # fields of a rule that do not decide


def gating_rules(edition: EditionReference) -> str:
    """Return the gating rules of a built-in edition: `growth (D1), reference gradient (D2)`.

    For another edition, return its title.
    """
    if provenance_of(edition) != SHIPPED:
        return edition.title
    rules = [rule for rule in load_edition(edition.name).rules if rule.gating]
    return ", ".join(f"{JUDGED_QUANTITIES.get(subject_of(rule.quantity), rule.title)} ({rule.code})" for rule in rules)


def changed_rules(edition: EditionReference) -> list[tuple[str, str]]:
    """Return the rules of a built-in edition that edition 2026-05 does not have, each with its rationale.

    The list is empty for edition 2026-05, older editions and user-supplied editions.
    """
    if provenance_of(edition) != SHIPPED or edition.name.partition(":")[0] <= PUBLISHED:
        return []
    judged = load_edition(edition.name)
    changes = differences(judged, load_edition(PUBLISHED))
    codes = {change.rule for change in changes if change.field not in EXPLANATIONS}
    return [(f"{rule.code} {rule.title}", rule.rationale) for rule in judged.rules if rule.code in codes]


@lru_cache(maxsize=8192)  # the same texts occur in every form of an audit
def markdown_text(text: str) -> Markup:
    """Return untrusted text for a Markdown page, in one line and without markup."""
    line = re.sub(r"[ \t\n]+", " ", escape_control(text)).strip(" ")
    line = MARKDOWN_INLINE.sub(r"\\\1", line)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("://", ":\\//")
    return Markup(MARKDOWN_BLOCK.sub(lambda found: f"{found[1]}\\" if found[1].isdigit() else f"\\{found[1]}", line))


def verbatim(text: str) -> Markup:
    """Return the author's Markdown without escaping; do not use it in HTML templates."""
    return Markup(text)


def fence(text: str) -> Markup:
    """Return untrusted text as a Markdown code block.

    The fence is longer than any sequence of back-ticks in the text.
    """
    # a comment in the text must not be taken for the marker of a blank
    body = escape_control(text).replace("<!--", "<! --")
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Markup(f"{ticks}\n{body.rstrip()}\n{ticks}")


KINDS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "num": num,
        "sci": sci,
        "pct": pct,
        "pp": pp,
        "nats": nats,
        "signed_nats": signed_nats,
        "cos": cos,
        "exact": exact,
        "compact": compact,
    }
)
