"""Every rule on its fixture: as a file, in a notebook, silenced; order, places, and no false alarm on this package."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy
import pytest

import fa_registry
from fa_lint.rules import all_rules
from fa_lint.runner import BAD_SILENCE, UNREADABLE, lint_paths
from fa_lint.syntax import Syntax, argument, number, open_ended
from tests.lint.samples import CLAMPED_COSINE, MEAN_REDUCED, NEGATIVE_NORM, PITFALLS, codes, found, notebook

CODES = sorted(PITFALLS)


def test_every_rule_has_a_fixture_and_a_whole_card():
    cards = [rule.card for rule in all_rules()]
    assert [card.code for card in cards] == CODES
    assert [card.pitfall for card in cards] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 7, 13, 6, 8, 0, 0]
    for card in cards:
        assert card.code in (f"FA{card.pitfall:03d}", *(f"FA0{number}" for number in range(13, 19)))  # see RuleCard
        assert all((card.name, card.title, card.why, card.fix))


@pytest.mark.parametrize("code", CODES)
def test_each_pitfall_is_found_once_and_nothing_else(code):
    assert codes(PITFALLS[code]) == [code]


def test_a_rule_skips_a_file_without_the_words_that_it_needs():
    for rule in all_rules():
        assert rule.clues and rule.possible(PITFALLS[rule.card.code]) and not rule.possible("x = 1\n")


@pytest.mark.parametrize("code", CODES)
def test_each_pitfall_is_found_in_a_notebook_with_cell_and_line(code, tmp_path):
    path = tmp_path / "analysis.ipynb"
    head, _, rest = PITFALLS[code].partition("\n\n")  # imports in one cell, their use in the next
    path.write_bytes(notebook(f"%matplotlib inline\n{head}", "!ls", rest))
    (alone,) = found(PITFALLS[code])
    (finding,) = lint_paths([str(path)]).findings
    assert (finding.code, finding.place.cell) == (code, 4)
    assert finding.place.line == alone.place.line - len(head.splitlines()) - 1
    assert finding.place.column == alone.place.column


@pytest.mark.parametrize("code", CODES)
def test_a_comment_with_a_reason_silences_that_line(code):
    (alone,) = found(PITFALLS[code])
    lines = PITFALLS[code].splitlines()
    lines[alone.place.line - 1] += f"  # fa: ok {code} measured elsewhere"
    (finding,) = found("\n".join(lines))
    assert (finding.code, finding.silenced) == (code, "measured elsewhere")


@pytest.mark.parametrize("code", CODES)
def test_a_comment_for_another_rule_or_on_another_line_silences_nothing(code):
    (alone,) = found(PITFALLS[code])
    lines = PITFALLS[code].splitlines()
    other = CODES[CODES.index(code) - 1]
    lines[alone.place.line - 1] += f"  # fa: ok {other} measured elsewhere"
    lines[0] += f"  # fa: ok {code} measured elsewhere"
    (finding,) = found("\n".join(lines))
    assert not finding.silenced


def test_a_comment_on_the_last_line_of_a_call_counts():
    text = CLAMPED_COSINE.replace("gradient, dim=1)", "gradient, dim=1\n    )  # fa: ok FA002 inputs are unit vectors")
    assert [one.silenced for one in found(text)] == ["inputs are unit vectors"]


def test_a_comment_without_reason_is_a_finding_and_silences_nothing():
    findings = found(NEGATIVE_NORM.replace("norm(-1)", "norm(-1)  # fa: ok FA001"))
    assert [(finding.code, finding.silenced) for finding in findings] == [("FA001", ""), ("FA901", "")]
    assert findings[1].place.text == "sample.py:4:24"
    assert "no reason" in findings[1].what


def test_a_comment_with_an_unknown_code_silences_nothing_at_all():
    findings = found(NEGATIVE_NORM.replace("norm(-1)", "norm(-1)  # fa: ok FA001, FA099 meant so"))
    assert [(finding.code, finding.silenced) for finding in findings] == [("FA001", ""), ("FA901", "")]


def test_columns_count_characters_and_findings_come_in_order():
    findings = found('import torch\nγ = "é"; x.norm(-1); y.norm(-1)\nz.norm(-1)\n')
    assert [(finding.place.line, finding.place.column, finding.place.end_column) for finding in findings] == [
        (2, 10, 20),
        (2, 22, 32),
        (3, 1, 11),
    ]


def test_a_file_that_does_not_parse_is_a_finding_in_addition_to_the_others(tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\ndef (\n")
    (tmp_path / "good.py").write_text(NEGATIVE_NORM)
    report = lint_paths([str(tmp_path)])
    assert [(finding.code, finding.place.line) for finding in report.findings] == [(UNREADABLE.code, 2), ("FA001", 4)]
    assert (report.files, report.exit_code) == (2, 1)


def test_an_expression_too_deep_for_a_rule_is_a_finding():
    deep = MEAN_REDUCED.replace("loss, h)", "loss" + " + loss" * 2000 + ", h)")
    (finding,) = found(deep)
    assert finding.code == "FA900" and "FA008" in finding.what


def test_nothing_is_imported(tmp_path):
    (tmp_path / "bomb.py").write_text("raise SystemExit('imported')\n")
    assert lint_paths([str(tmp_path)]).findings == ()


def test_every_code_has_a_card_in_the_report(tmp_path):
    (tmp_path / "one.py").write_text("")
    assert [card.code for card in lint_paths([str(tmp_path)]).cards] == [*CODES, UNREADABLE.code, BAD_SILENCE.code]


@pytest.mark.long
def test_no_false_alarm_on_this_package_and_on_the_norms_of_numpy():
    paths = [Path(fa_registry.__file__).parent, Path(numpy.__file__).parent / "linalg"]
    report = lint_paths([str(path) for path in paths])
    assert [finding.place.text for finding in report.findings] == []
    assert report.files > 100


COSINE = "torch.nn.functional.cosine_similarity"


def last_call(text: str) -> str:
    """What the last call of a text resolves to."""
    syntax = Syntax(text)
    return syntax.resolve(max(syntax.every(ast.Call), key=lambda call: (call.lineno, call.col_offset)).func)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.nn.functional.cosine_similarity()",
        "import torch as t\nt.nn.functional.cosine_similarity()",
        "import torch.nn.functional\ntorch.nn.functional.cosine_similarity()",
        "import torch.nn.functional as F\nF.cosine_similarity()",
        "from torch import nn\nnn.functional.cosine_similarity()",
        "from torch.nn import functional as f\nf.cosine_similarity()",
        "from torch.nn.functional import cosine_similarity\ncosine_similarity()",
        "from torch.nn.functional import cosine_similarity as cs\ncs()",
        "from torch.nn.functional import *\ncosine_similarity()",
        "import torch.nn.functional as F\nk = F.cosine_similarity\nk()",
        "import torch.nn.functional as F\nk = F\nj = k.cosine_similarity\nj()",
        "def f():\n    import torch.nn.functional as F\n    return F.cosine_similarity()",
        "import torch.nn.functional as F\ndef f():\n    def g():\n        return F.cosine_similarity()",
        "import torch.nn.functional as F\nclass C:\n    F = None\n    def g(self):\n        return F.cosine_similarity()",
        "try:\n    import torch.nn.functional as F\nexcept ImportError:\n    F = None\nF.cosine_similarity()",
        "from torch.nn.functional import cosine_similarity as cs\n[cs() for cs in ()]",
    ],
)
def test_found_by_whatever_name(text):
    assert last_call(text) == COSINE


@pytest.mark.parametrize(
    "text",
    [
        "cosine_similarity()",
        "F.cosine_similarity()",
        "from sklearn.metrics.pairwise import cosine_similarity\ncosine_similarity()",
        "from torch.nn.functional import cosine_similarity as cs\ndef f(cs):\n    return cs()",
        "from torch.nn.functional import cosine_similarity as cs\ndef f(*, cs=None):\n    return cs()",
        "from torch.nn.functional import cosine_similarity as cs\ndef f():\n    cs = 1\n    return cs()",
        "from torch.nn.functional import cosine_similarity as cs\nlambda cs: cs()",
        "def g():\n    import torch.nn.functional as F\ndef f():\n    return F.cosine_similarity()",
        "from .functional import cosine_similarity\ncosine_similarity()",
        "import torch.nn.functional as F\nk = F.cosine_similarity\nk = len\nk()",
        "import torch.nn.functional as F\nk = len\nk = F.cosine_similarity\nk()",
        "a = b\nb = a\na()",
    ],
)
def test_not_taken_for_it(text):
    assert last_call(text) != COSINE


def test_packages_are_those_imported_at_any_depth():
    syntax = Syntax("import os.path\nfrom . import x\ndef f():\n    from torch.nn import *\n")
    assert syntax.names.packages == {"os", "", "torch"}


def call(text: str) -> ast.Call:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "value"), [("-1", -1), ("+2", 2), ("1e-8", 1e-8), ("True", None), ("n", None), ("'1'", None)]
)
def test_number(text, value):
    assert number(ast.parse(text, mode="eval").body) == value


def test_minus_one_stays_a_whole_number():
    assert type(number(ast.parse("-1", mode="eval").body)) is int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(1, 2)", "2"),
        ("f(1, dim=3)", "3"),
        ("f(1)", None),
        ("f(*a, 2)", None),
        ("f(1, other=2)", None),
    ],
)
def test_argument_by_position_or_name(text, expected):
    node = argument(call(text), 1, "dim", "axis")
    assert (ast.unparse(node) if node else None) == expected


@pytest.mark.parametrize(("text", "is_open"), [("f(*a)", True), ("f(**a)", True), ("f(a, b=c)", False)])
def test_open_ended(text, is_open):
    assert open_ended(call(text)) is is_open


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("E = 1e-30\nf(E)", 1e-30),
        ("E = 1e-30\nE = 1\nf(E)", None),
        ("def g(E):\n    f(E)\nE = 1e-30", None),
        ("def g():\n    E = 1e-30\nf(E)", None),
    ],
)
def test_a_constant_of_the_module_counts_if_it_is_set_once(text, value):
    syntax = Syntax(text)
    (found,) = syntax.every(ast.Call)
    assert syntax.number(found.args[0]) == value


def test_bad_escapes_raise_no_warning():
    assert Syntax('import torch\nx = "\\d"\n').tree.body  # warnings are errors in this suite


def test_a_long_snippet_is_shortened_to_one_line():
    syntax = Syntax("f(\n    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,\n    bbbbbbbbbbbbbbbbbbbbbbbbbbbbb,\n)")
    (found,) = syntax.every(ast.Call)
    assert len(syntax.snippet(found)) == 60 and syntax.snippet(found).endswith("…")
