"""The project's text and names keep the rules of docs/glossary.md; the allow-list is short, and every entry has a reason."""

from __future__ import annotations

import pytest

from tests.language.check import ROOT, Problem, markdown, problems, prose_problems, python_problems, template

# (file, what) → why it may stay. An entry that nothing needs any more fails the test.
ALLOWED: dict[tuple[str, str], str] = {
    ("fa_registry/records/configurations.py", "tell"): "stored outcome `CANNOT TELL HERE`, quoted in its sentence",
    ("fa_registry/tracking/mlflow_views.py", "somebody"): "a note in existing stores is recognised by this text",
    ("fa_registry/audits/dataframes.py", "quantity"): "the column of `series()` that users' notebooks read",
}
MOST_ALLOWED = 20


@pytest.fixture(scope="module")
def found() -> list[Problem]:
    return problems()


def test_text_and_names_are_plain(found):
    left = [problem for problem in found if (problem.file, problem.what) not in ALLOWED]
    assert left == [], "\n".join(map(str, left[:40]))


def test_the_allow_list_is_short_and_needed(found):
    assert len(ALLOWED) <= MOST_ALLOWED and all(len(reason) > 15 for reason in ALLOWED.values())
    assert set(ALLOWED) <= {(problem.file, problem.what) for problem in found}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('def f():\n    """Whoever calls it is told."""', "'Whoever'"),
        ("def tell():\n    pass", "name 'tell'"),
        ("words = 3", "name 'words'"),
        ("class Twin:\n    pass", "name 'Twin'"),
        ('"""' + "x" * 101 + '"""', "first line has 101"),
        ("raise ValueError('nobody can read this file')", "'nobody'"),
        ("raise ValueError(f'the file {path} lies elsewhere')", "'lies'"),
        ("x = 1  # the strangers come", "'strangers'"),
        (f"print('{'word ' * 31}')", "sentence of 31 words"),
        ("print('the training of 3 runs is verified')", "verified'"),
        ("print('the audit verifies the replayed steps')", "replayed'"),
        ("print('the control is verified here')", "'control is verified'"),
    ],
)
def test_a_broken_rule_of_code_is_found(code, message):
    messages = [problem.message for problem in python_problems("fa_registry/some_module.py", code)]
    assert any(message in one for one in messages)


def test_modules_are_named_by_nouns():
    for name in ("looking", "sealed", "own", "captured"):
        assert list(python_problems(f"fa_registry/{name}.py", ""))
    for name in ("metrics", "training", "_probe"):
        assert not list(python_problems(f"fa_registry/{name}.py", ""))


@pytest.mark.parametrize(
    ("reader", "text", "count"),
    [
        (markdown, "What is said here.\n", 1),
        (markdown, "`is said` and\n```\nnobody\n```\n", 0),
        (markdown, "| a | whoever |\n", 1),
        (markdown, " ".join(["word"] * 31) + "\n", 1),
        (template, "{% for nobody in words %}<p>It stands here</p>", 1),
        (template, "{{ nobody }} {# whoever #}", 0),
        (template, "<p>18 verified runs</p>", 1),
        (template, "<p>18 runs trained; their metrics are verified</p>", 0),
    ],
)
def test_a_broken_rule_of_prose_is_found_and_code_is_not_read(reader, text, count):
    assert len(list(prose_problems("page", reader(text)))) == count


def test_the_files_that_are_read_are_there():
    from tests.language.check import files

    read = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {
        "README.md",
        "SECURITY.md",
        "docs/architecture.md",
        "templates/form.html.j2",
        "fa_registry/metrics/declarations.py",
    } <= read
