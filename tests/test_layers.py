"""Imports point down the layers. The layers are those of docs/architecture.md; tests show that the check can fail."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import fa_registry
from fa_registry.reference.architecture import LAYERS

PACKAGE = Path(fa_registry.__file__).parent

# Modules of one layer never import each other; the lowest layer may.
GROUND = LAYERS[0]
ONLY = {
    "mlflow": ("tracking",),
    "sqlalchemy": ("tracking",),
    "jinja2": ("reporting",),
    "matplotlib": ("reporting",),
    "ray": ("studies",),
    "submitit": ("studies",),
    "lightning": ("external",),
    "transformers": ("external",),
    "pydantic": ("field_types", "jsonio", "reference"),
    "fa_lint": ("cli",),
}
NO_TENSORS = ("protocol", "analyses", "reporting", *GROUND, "plugin_registry", "statistics")


def rank(part: str) -> int:
    return next(index for index, row in enumerate(LAYERS) if part in row)


def imported(source: str) -> set[str]:
    """Dotted names of everything a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "fa_registry"
                else {node.module}
            )
    return found


def violations(part: str, source: str) -> list[str]:
    """What a module of the top-level part `part` imports although it may not."""
    wrong = []
    for name in imported(source):
        top, _, rest = name.partition(".")
        if top in ONLY and part not in ONLY[top]:
            wrong.append(f"{part} imports {top}")
        if top in ("torch", "torchvision") and part in NO_TENSORS:
            wrong.append(f"{part} knows no tensor but imports {top}")
        if top != "fa_registry" or not rest:
            continue
        target, _, inner = rest.partition(".")
        same_row = target != part and rank(target) == rank(part) and part not in GROUND
        if rank(target) > rank(part) or (same_row and inner != "base"):
            wrong.append(f"{part} imports {name}")
    return wrong


def test_imports_point_down():
    found = {
        path.relative_to(PACKAGE).as_posix(): violations(
            path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path.read_text(encoding="utf-8")
        )
        for path in PACKAGE.rglob("*.py")
    }
    assert len(found) > 200 and {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("protocol", "import torch"),
        ("reporting", "from fa_lint.runner import lint_paths"),
        ("training", "from fa_registry.tracking.base import Tracker"),
        ("training", "def late():\n    import mlflow"),
        ("methods", "from fa_registry.diagnostics.gamma import PLUGIN"),
        ("protocol", "from fa_registry.tracking.schema import SPEC"),
        ("records", "from fa_registry import plugin_registry"),
        ("audits", "from fa_registry.cli import main"),
        ("studies", "from fa_registry.evidence.remeasure import remeasure_all"),
        ("external", "from fa_registry.audits.selection import select_runs"),
        ("tracking", "import jinja2"),
        ("studies", "from pydantic import BaseModel"),
        ("analyses", "import torch"),
        ("analyses", "import mlflow"),
        ("analyses", "import matplotlib"),
        ("analyses", "from fa_registry.reporting.text.filters import num"),
        ("protocol", "from fa_registry.analyses.base import Analysis"),
        ("metrics", "from fa_registry.reporting.view_models import Number"),
        ("statistics", "from fa_registry.metrics import over_seeds"),
    ],
)
def test_the_law_can_fail(part, source):
    assert violations(part, source)


def test_siblings_meet_through_their_base_classes():
    assert violations("diagnostics", "from fa_registry.methods.base import MethodCard") == []


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_mlflow_tells_its_makers_nothing_of_who_uses_us():
    assert (
        run_python("import fa_registry.tracking.mlflow_tracker, os; print(os.environ['MLFLOW_DISABLE_TELEMETRY'])")
        == "true"
    )


LIGHT = {
    "judging, rendering and old reports": (
        "import fa_registry.reporting.render, fa_registry.protocol.engine, fa_registry.audits.reports\n"
        "import fa_registry.reporting.figures.analyses\n"
        "from fa_registry.analyses import CATALOG\n"
        "for name in CATALOG.names(): CATALOG.get(name)",
        {"torch", "mlflow"},
    ),
    "the package": ("import fa_registry", {"torch", "numpy", "mlflow", "click", "jinja2"}),
    "the help": (
        "from click.testing import CliRunner\nfrom fa_registry.cli import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0",
        {"torch", "numpy", "mlflow", "rich", "jinja2", "pandas"},
    ),
}


@pytest.mark.parametrize("name", LIGHT)
def test_what_needs_no_heavy_library_imports_none(name):
    code, heavy = LIGHT[name]
    assert run_python(f"{code}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))") == "[]"


def test_training_and_measuring_work_without_mlflow_pandas_and_rich():
    code = (
        "import sys\n"
        "for name in ('mlflow', 'pandas', 'rich', 'sqlalchemy', 'pydantic'): sys.modules[name] = None\n"
        "import fa_registry.training.loop, fa_registry.training.resume, fa_registry.training.measuring, fa_registry.external\n"
        "import fa_registry.conformance\n"
        "print('imported')"
    )
    assert run_python(code) == "imported"


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("fa_registry.inspection.inspect_runs", ["matplotlib", "torch"]),  # lists of runs, optimize
        ("fa_registry.inspection.plugin_list", ["matplotlib", "mlflow", "pandas"]),  # lists of what there is, cards
    ],
)
def test_who_only_looks_waits_for_nothing_that_it_does_not_use(module, spared):
    """Seconds each, of a command that takes milliseconds."""
    assert run_python(f"import sys, {module}; print([name for name in {spared} if name in sys.modules])") == "[]"


def test_public_names_are_sorted_and_real():
    assert fa_registry.__all__ == sorted(fa_registry.__all__)
    for name in fa_registry.__all__:
        assert getattr(fa_registry, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fa_registry.nonsense  # noqa: B018


def modules_imported(path: Path) -> set[Path]:
    """Modules of the package that a module imports when a program runs: at its top and in its functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fa_registry":
            home = PACKAGE.parent.joinpath(*node.module.split("."))
            found.add(home.with_suffix(".py"))
            for alias in node.names:  # a module of a package, or a name that the package itself defines
                module = home / f"{alias.name}.py"
                found.add(module if module.is_file() else home / "__init__.py")
    return {one for one in found if one.is_file()} - {path}


def test_no_module_imports_itself_by_way_of_others():
    graph = {path: modules_imported(path) for path in PACKAGE.rglob("*.py")}
    while leaves := {path for path, imports in graph.items() if not imports & graph.keys()}:
        graph = {path: imports for path, imports in graph.items() if path not in leaves}
    assert sorted(path.relative_to(PACKAGE).as_posix() for path in graph) == []


def test_every_name_that_a_test_imports_exists():
    """The short suite imports no file of long tests, so a renamed function would be missed there for an hour."""
    wrong = []
    for path in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fa_registry."):
                module = importlib.import_module(node.module)
                for name in (alias.name for alias in node.names if not hasattr(module, alias.name)):
                    if not hasattr(module, "__path__") or importlib.util.find_spec(f"{node.module}.{name}") is None:
                        wrong.append(f"{path.name} imports {node.module}.{name}")
    assert wrong == []
