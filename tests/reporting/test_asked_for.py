"""Requests that are one line of metrics/declarations.py: other text for a metric, and one more column.

Each is made in a separate process, before anything else has read the catalogue, as a change of the file would be.
"""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fa_registry
from fa_registry import bundled_files
from fa_registry.metrics import DECLARED, metric_named
from fa_registry.reporting.text import filters
from tests.reporting.page import section, text_of

pytestmark = pytest.mark.long

WRITTEN = """
import contextlib, dataclasses, io, json, sys
from pathlib import Path
from types import MappingProxyType

from fa_registry import metrics

asked = json.loads(sys.argv[1])
changed = {}
for name, quantity in metrics.DECLARED.items():
    said = {field: getattr(quantity, field) for field in ("symbol", "words", "head", "under", "alone")}
    for old, new in asked["letters"].items():
        said = {field: text.replace(old, new) for field, text in said.items()}
    changed[name] = dataclasses.replace(quantity, **{**said, **asked["words"].get(name, {})})
metrics.DECLARED = metrics.headlines.DECLARED = MappingProxyType(changed)
for headline in metrics.HEADLINES.values():
    for field in ("metric", "frozen_metric", "margin_metric"):
        object.__setattr__(headline, field, changed[getattr(headline, field).name])
metrics.MARGIN_LABEL, metrics.MARGIN_SYMBOL = metrics.DEFAULT.margin_metric.label, metrics.DEFAULT.margin_metric.symbol
added = {name: (*metrics.TABLES[name], *asked["columns"]) for name in ("audit", "audit_command")}
added["paper"] = (*metrics.TABLES["paper"][:3], *asked["columns"])
metrics.table_columns.TABLES = MappingProxyType({**metrics.TABLES, **added})

from fa_registry import diagnostics, jsonio
from fa_registry.analyses import CATALOG
from fa_registry.cli.audit import audited
from fa_registry.cli.compare import compared
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rules import load_edition
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.pages.notes import Notes
from fa_registry.reporting.render import render_comparison
from fa_registry.audits.audit_command import AuditResult
from fa_registry.audits.compare_command import CompareResult
from tests.reporting.page import written
from tests.reporting.sample_reports import full_report

report = full_report()
cards = {f"diagnostics/{name}": diagnostics.CATALOG.get(name).card for name in diagnostics.CATALOG.names()}
report = dataclasses.replace(report, cards={**report.cards, **jsonio.encode(cards)})
folder = Path(sys.argv[2])
pages = written(report, folder)
context = compare_context(report, groups(report)[:2])
pages["compare.html"] = render_comparison(context, folder).read_text("utf-8")
pages["note"] = Notes(report).of_run(report.runs[0])
out = io.StringIO()
with contextlib.redirect_stdout(out):
    audited(AuditResult(report, (folder / "index.html",), "", 0), False)
    compared(CompareResult(context, folder / "compare.html", 0), False)
pages["terminal"] = out.getvalue()
edition = load_edition(report.edition.name)
found = [CATALOG.get(name).run(report, edition) for name in CATALOG.names()]
columns = [column.words for one in found for table in one.tables for column in table.columns]
pages["analyses"] = "\\n".join([*columns, *(words for one in found for words in (one.title, one.question, *one.remarks))])
print(json.dumps(pages))
"""

# Text in other words than the catalogue's: figures write their axes in mathtext, a card and an edition's limits speak
# for themselves, and pitfalls are sentences of the published protocol.
ELSEWHERE = re.compile(
    r"<style>.*?</style>|<figure.*?</figure>|[Rr]equired[^<\n|]*"
    r"|test accuracy above the frozen controls?|<ul class=\"notes\">.*?</ul>"
    r"|<section[^>]*aria-labelledby=\"(?:pitfalls|figures|identification|citations)\">.*?</section>"
    r"|^## Pitfalls.*|^\\fasection{Pitfalls.*|^(?:- \*\*|\\item \\textbf)[^\n]*Cannot show[^\n]*$",
    re.DOTALL | re.MULTILINE,
)


def asked(folder, terms, letters, columns):
    """Every page, the note of a run and what the terminal prints, with these words and these further columns.

    letters: what is replaced in the text of every other metric.
    """
    request = json.dumps({"words": terms, "letters": letters, "columns": columns})
    command = [sys.executable, "-c", WRITTEN, request, str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "500"})
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


NEW = {
    "accuracy": {"symbol": "hits", "head": "Hits", "alone": "hits in the test", "words": "of all test samples"},
    "frozen_accuracy": {"symbol": "still", "head": "Still", "alone": "still hits", "words": "hits of still blocks"},
    "margin_pp": {"symbol": "lead", "head": "Lead", "alone": "lead over still blocks", "words": "hits less still hits"},
    "h_L": {"symbol": "‖x_L‖", "head": "‖x_L‖", "words": "length at the end"},
    "h_norm": {"symbol": "‖x_l‖", "words": "length of a state"},
    "growth": {"symbol": "swell", "words": "‖x_l‖ by ‖x_l−1‖"},
    "growth_max": {"symbol": "swell", "head": "Swell", "alone": "largest swell", "words": "the largest there is"},
    "g_norm_mean_ce_L": {"symbol": "‖s_L‖", "under": "CE mean", "alone": "‖s_L‖ of a batch", "words": "of a batch"},
    "g_norm_mean_ce": {"symbol": "‖s_l‖ of a batch", "words": "as published", "under": "CE mean"},
    "g_L": {"symbol": "‖s_L‖ each", "words": "of each sample"},
    "stability_mid": {"symbol": "rest", "head": "Rest", "words": "in the middle"},
    "gain": {"symbol": "yield", "words": "how much arrives"},
    "fidelity": {"symbol": "faith", "words": "float32 by float64"},
    "gamma": {"symbol": "Δ", "words": "cosine of both"},
    "gamma_deep_mean": {"symbol": "Δ", "alone": "Δ, deep", "words": "mean of all that is deep"},
}
# Other names of a renamed metric somewhere, by its new symbol: a new heading need not be listed here.
NEW = {
    name: {field: given["symbol"].capitalize() for field in ("head", "alone") if getattr(DECLARED[name], field)} | given
    for name, given in NEW.items()
}

LETTERS = {"Γ": "Δ", "‖h": "‖x", "‖g": "‖s", "g_l": "s_l"}


ADDED = ["norm_ratio_L", "feature_drift_blocks"]  # a site metric at the last site, and a scalar of a run


@pytest.fixture(scope="module")
def renamed(tmp_path_factory):
    """Both requests in one process, because its start and the pages take seconds."""
    return asked(tmp_path_factory.mktemp("renamed"), NEW, LETTERS, ADDED)


def of(pages, *names):
    """The pages by these names or ends of names as a reader gets them, without the text that is listed elsewhere."""
    chosen = (text for name, text in pages.items() if name.endswith(names))
    return "\n".join(ELSEWHERE.sub("", text) for text in chosen)


NEW_TEXTS = {
    "index.html": "Hits; Still; Lead; Swell; CE mean; Rest; Δ; the largest there is; deep",
    "analyses": "hits in the test; largest swell, geometric; still hits; lead over; ‖s_L‖ of a batch; Δ, deep; Σ|Δ|",
    "compare.html": "hits <small>of all test samples; lead; swell; ‖s_L‖; Δ, deep; in the middle; ‖x_l‖, length of a state; "
    "‖s_l‖ of a batch; Δ by every aggregation",
    "note": "hits in the test; largest swell; ‖s\\_L‖ of a batch; Δ, deep; ‖x\\_L‖; still hits",
    "audit_table.tex": r"Hits; Swell; Lead",
    "terminal": "hits in the test; largest swell; lead over still blocks; Δ = 1 by construction",
    ".md": "Hits in the test; lead; Δ by gamma; that is deep; ‖x\\_L‖; Swell; ‖s\\_L‖ CE mean; the yield is healthy; "
    "faith of at least; the largest swell in one block; Δ = 0.; the lead over",
}


@pytest.mark.parametrize("page", NEW_TEXTS)
def test_a_metric_has_its_new_text_everywhere(renamed, page):
    text = of(renamed, page)
    assert [word for word in NEW_TEXTS[page].split("; ") if word not in text] == []


# What they are called today, as pages and LaTeX write it; a word alone only where it begins a cell or a sentence.
TODAY = {
    getattr(DECLARED[name], field)
    for name, given in NEW.items()
    for field in given
    if field in ("symbol", "alone", "under")
}
OLD = (
    *(word.replace("_", mark) for word in TODAY if " " in word or not word.isascii() for mark in ("_", "\\_", "<sub>")),
    *(
        f"{word.capitalize()}{after}"
        for word in TODAY
        if word.isalpha() and word.isascii()
        for after in ("<", " &", " |")
    ),
    *("‖h_", "‖h\\_", r"\Gamma", "margin is", f"**{DECLARED['growth'].symbol}**"),
)


def test_no_page_says_what_it_was_called(renamed):
    pages = {
        name: text for name, text in renamed.items() if not name.startswith("figures/")
    }  # drawn with their own text
    found_terms = {name: [word for word in OLD if word in of({name: text}, name)] for name, text in pages.items()}
    found_terms = {
        name: terms for name, terms in found_terms.items() if terms and not name.endswith((".json", ".xml", ".csv"))
    }
    assert found_terms == {}, "use metrics.symbol_of() or metric_named().label"


def test_a_name_in_the_tuple_is_a_column_with_its_numbers(renamed):
    pages, report = renamed, json.loads(renamed["audit.json"])
    measured = report["runs"][0]["record"]["measurements"]
    ratio = filters.num(measured["sites"]["norm_ratio"][-1])
    drift = filters.num(measured["scalars"]["feature_drift_blocks"])
    form = next(text for name, text in pages.items() if name.startswith("forms/bp") and name.endswith(".md"))
    by_seed = next(line for line in form.split("\n") if line.startswith("| Method | Seed"))
    assert "‖c\\_l‖/‖s\\_l‖ |" in by_seed and "drift of the blocks" not in by_seed  # that has its own line in a form
    for name in ("index.html", "compare.html", "terminal", "audit_table.tex"):
        assert ratio in pages[name] and drift in pages[name], name
    assert metric_named("norm_ratio_L").words in text_of(section(pages["index.html"], "verdicts"))
    (row, *_) = csv.DictReader(pages["audit.csv"].splitlines())
    assert list(row)[-1] == "reasons" and row["feature_drift_blocks"]
    assert float(row["norm_ratio_L"]) == measured["sites"]["norm_ratio"][-1]


# Where the catalogue's text may appear a second time, and why.
EXCEPTIONS = {
    "figures": "titles and axes of pictures, some in mathtext",
    "pitfalls.py": "the checklist of the published protocol, in its own words",
    "latex.py": "translates the signs themselves",
    "models.py": "the help of an option",
    "schemas.py": "writes docs/",
}
ROOMS = ("reporting", "analyses", "cli", "tracking")
TYPED = {text for one in DECLARED.values() for text in (one.symbol, one.alone) if not text.isascii() or " " in text}
COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)  # of a template
SIGNS = {"Γ", "ρ", "‖h_l‖", "‖h_L‖", "‖g_l‖", "‖g_L‖"}


def literals(source):
    """The texts of a module that may be printed: neither docstrings nor what only documents a field."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    left_out = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    helps = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "documented"]
    left_out |= {id(inner) for call in helps for inner in ast.walk(call)}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out
    ]


def named(texts):
    return sorted({word for word in TYPED | SIGNS for text in texts if word in text})


def test_no_module_and_no_template_writes_what_the_catalogue_says():
    package = Path(fa_registry.__file__).parent
    modules = [path for room in ROOMS for path in (package / room).rglob("*.py")]
    found = {path: named(literals(path.read_text("utf-8"))) for path in modules}
    found |= {
        path: named([COMMENT.sub("", path.read_text("utf-8"))]) for path in bundled_files.templates().glob("*.j2")
    }
    assert {
        path.name: terms for path, terms in found.items() if terms and not EXCEPTIONS.keys() & {path.name, *path.parts}
    } == {}, "use metrics.symbol_of() or metric_named().label"


def test_what_it_finds_is_what_would_be_printed():
    label = DECLARED["growth_max"].label
    source = f'"""Γ of a docstring."""\nLINE = f"the {label} is {{value}}"\nHELP = documented("Γ by name", "cosine")\n'
    assert label in named(literals(source)) and not SIGNS & set(named(literals(source)))
