"""Plain language, checked: `python -m tests.language.check [PATH…]` prints every place that breaks a rule of docs/glossary.md.

Read are identifiers, docstrings, comments and messages of the library, the templates, and all Markdown. Code in Markdown, names
in backticks, what a template fills in, blocks that are generated or measured, and fields of classes are left out.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
LONGEST_SENTENCE = 30  # words, in documentation, help and messages
LONGEST_FIRST_LINE = 100  # characters of a docstring
# Generated from the code or from recorded files, whose keys stay; and history.
NOT_READ = ("docs/reference-", "docs/audit-json.md", "docs/performance.md", "tests/", "CHANGELOG.md")
GERUNDS = ("training", "tracking", "reporting", "testing", "signing", "seeding", "grouping", "measuring", "recording")
PLUGINS = (
    "methods",
    "datasets",
    "rules",
    "callbacks",
)  # folders whose modules have names that are stored, or of a library


@dataclass(frozen=True, order=True)
class Problem:
    """One place that breaks a rule. what: the word or name that an entry of the allow-list may name."""

    file: str
    line: int
    what: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def problems(paths: Sequence[Path] = ()) -> list[Problem]:
    """Return all problems of the files, by default of the whole checkout, in order."""
    found = []
    for path in paths or files():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            found += list(python_problems(name, text))
        else:
            found += list(prose_problems(name, markdown(text) if path.suffix == ".md" else template(text)))
    if not paths:
        found += list(duplicate_classes())
    return sorted(set(found))


def files() -> list[Path]:
    """Return the files that are read by default."""
    kinds = [
        *ROOT.glob("fa_registry/**/*.py"),
        *ROOT.glob("packages/*/*/**/*.py"),
        *ROOT.glob("packages/*/README.md"),
        *(path for path in ROOT.glob("templates/**/*.j2") if not path.name.startswith("style")),
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("projects/*/README.md"),
    ]
    return [path for path in kinds if not path.relative_to(ROOT).as_posix().startswith(NOT_READ)]


Passage = tuple[int, str, bool]  # line, text, whether its sentences are counted


def markdown(text: str) -> Iterator[Passage]:
    """Paragraphs, list items and table cells, without code, addresses and comments."""
    measured = r"<!-- (?:measured|generated).*?<!-- /(?:measured|generated) -->"  # its source, the code, is read
    text = re.sub(
        rf"{measured}|```.*?```|<!--.*?-->|\$\$.*?\$\$", lambda match: "\n" * match[0].count("\n"), text, flags=re.S
    )
    paragraph: list[str] = []
    start = 1
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.startswith("    ") and not paragraph:
            continue
        if not line.strip() or re.match(r"\s*([-*|#>]|\d+\.)\s?", line):
            if paragraph:
                yield start, _plain(" ".join(paragraph)), True
            paragraph = []
            if line.lstrip().startswith("|"):
                yield from ((number, _plain(cell), True) for cell in line.strip().strip("|").split("|"))
                continue
        if line.strip():
            if not paragraph:
                start = number
            paragraph.append(line.strip())


def template(text: str) -> Iterator[Passage]:
    """What a template writes itself, line by line."""
    text = re.sub(
        r"\{#.*?#\}|\{%.*?%\}|<style.*?</style>|<script.*?</script>",
        lambda m: "\n" * m[0].count("\n"),
        text,
        flags=re.S,
    )
    text = re.sub(r"\{\{.*?\}\}", "X", text, flags=re.S)
    for number, line in enumerate(text.splitlines(), start=1):
        for part in re.split(r"<[^>]*>|\\[a-z]+", line):
            yield number, _plain(part), True


def _plain(text: str) -> str:
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"https?://\S+|[*_#>]{1,3}(?=\S)|(?<=\S)\*{1,2}", "", text)


def python_problems(name: str, text: str) -> Iterator[Problem]:
    """Problems of one module: its name, identifiers, docstrings, comments and messages."""
    tree = ast.parse(text)
    yield from _module_name(name)
    docstrings = set()
    # fields of a class are keys of JSON or variables of templates: stored names
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(node.target) for one in classes for node in one.body if isinstance(node, ast.AnnAssign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                docstrings.add(id(node.body[0].value))
                line = node.body[0].lineno
                first = docstring.splitlines()[0]
                if len(first) > LONGEST_FIRST_LINE:
                    yield Problem(name, line, first, f"docstring's first line has {len(first)} characters")
                yield from prose_problems(name, [(line, _plain(docstring), False)])
        if id(node) not in fields:
            yield from _names(name, node)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield from _message(name, node.lineno, "".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            yield from _message(name, node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from prose_problems(name, [(token.start[0], _plain(token.string), False)])


def _message(name: str, line: int, text: str) -> Iterator[Problem]:
    if text.strip().count(" ") >= 2 and not text.lstrip().startswith(("<", "@", "select", "SELECT")):
        yield from prose_problems(name, [(line, _plain(text), True)])


def _module_name(name: str) -> Iterator[Problem]:
    stem = Path(name).stem.strip("_")
    part = stem.split("_")[-1]
    if Path(name).parent.name in PLUGINS and not Path(name).name.startswith("_"):
        return
    bare = re.fullmatch(r"\w+(ing|ed|ly)", stem) and part not in (*GERUNDS, "seed")
    if bare or any(re.fullmatch(rule["pattern"], stem) for rule in RULES["module"]):
        yield Problem(name, 1, part, f"a module is named by a noun: {stem}")


def _names(file: str, node: ast.AST) -> Iterator[Problem]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        name = node.name
    elif isinstance(node, ast.arg):
        name = node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        name = node.id
    else:
        return
    for rule in RULES["name"]:
        for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", name):
            if re.fullmatch(rule["pattern"], part.lower()):
                yield Problem(file, node.lineno, name, f"name {name!r}: write {rule['write']}")


def prose_problems(name: str, passages: Iterable[Passage]) -> Iterator[Problem]:
    """Banned words, and sentences that are too long where they are counted."""
    for line, text, counted in passages:
        for rule in RULES["prose"]:
            for match in re.finditer(rf"(?<![\w-])({rule['pattern']})(?![\w-])", text, re.I):
                if match[0].isupper() and len(match[0]) > 3:  # a word of a verdict, which is stored
                    continue
                yield Problem(name, line, match[0].lower(), f"{match[0]!r}: write {rule['write']}")
        if counted:
            for sentence in re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[-*] ", text):
                length = len([word for word in sentence.split() if re.search(r"\w", word)])
                if length > LONGEST_SENTENCE:
                    yield Problem(
                        name, line, " ".join(sentence.split())[:60], f"sentence of {length} words: {sentence[:60]!r}…"
                    )


def duplicate_classes() -> Iterator[Problem]:
    """Public classes of one name in two modules."""
    homes = defaultdict(list)
    for path in sorted(ROOT.glob("fa_registry/**/*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append((path.relative_to(ROOT).as_posix(), node.lineno))
    for name, found in homes.items():
        for file, line in found[1:]:
            yield Problem(file, line, name, f"class {name} is in {found[0][0]} too")


if __name__ == "__main__":
    chosen = [Path(argument).resolve() for argument in sys.argv[1:]]
    for path in [
        file for one in chosen if one.is_dir() for file in one.rglob("*") if file.suffix in (".py", ".md", ".j2")
    ]:
        chosen.append(path)
    listed = problems([path for path in chosen if path.is_file()])
    print("\n".join(map(str, listed)))
    print(len(listed), "problems", file=sys.stderr)
