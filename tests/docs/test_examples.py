"""The examples run as they are, each in an empty folder; the notebook's output is looked at in a browser."""

from __future__ import annotations

import ast
import html
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fa_registry
from tests.end_to_end.browser import chromium
from tests.helpers.stores import working_in

EXAMPLES = Path(__file__).parents[2] / "examples"
DARK = "<body style='background:#111;color:#ddd'>"
pytestmark = pytest.mark.long  # half a minute


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_a_script_ends_in_an_audit(tmp_path, name):
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    command = [sys.executable, str(EXAMPLES / name)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert "WARN" in ended.stdout or "FAIL" in ended.stdout or "INCOMPLETE" in ended.stdout, ended.stdout
    assert (tmp_path / "reports" / "index.html").is_file()


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> tuple[dict, list[str]]:
    """The notebook's names when its cells have run one after another, and what each that ends on a value shows."""
    cells = json.loads((EXAMPLES / "study.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict = {}
    shown = []
    with working_in(tmp_path_factory.mktemp("notebook")):
        for cell in cells:
            if cell["cell_type"] == "code":
                assert not cell["outputs"] and cell["execution_count"] is None, "kept without outputs"
                *statements, last = ast.parse("".join(cell["source"])).body
                is_value = isinstance(last, ast.Expr)
                exec(
                    compile(ast.Module([*statements, *([] if is_value else [last])], []), "study.ipynb", "exec"), names
                )
                if is_value:
                    value = eval(compile(ast.Expression(last.value), "study.ipynb", "eval"), names)
                    written = getattr(value, "_repr_html_", lambda: None)()
                    shown.append(written or f"<pre>{html.escape(repr(value))}</pre>")
    return names, shown


def test_the_notebook_runs_and_shows_every_kind(executed):
    names, shown = executed
    assert names["trained"].failed == {} and len(names["trained"].trained) == 6
    assert sum("fa-registry" in page for page in shown) == 4, "audit, run, verdict, comparison"
    assert not any("<script" in page for page in shown)
    assert isinstance(names["audit"].report, fa_registry.AuditReport) and not names["gamma"].empty


@pytest.mark.browser
@pytest.mark.parametrize("body", ["<body>", DARK], ids=["light", "dark"])
def test_its_output_can_be_read_in_light_and_dark(executed, tmp_path, body):
    """As wide as its cells, in the notebook's own colours, nothing reported by axe."""
    from axe_playwright_python.sync_playwright import Axe

    _, shown = executed
    path = tmp_path / "notebook.html"
    parts = "".join(f"<section>{page}</section>" for page in shown if "fa-registry" in page)
    head = '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>study</title></head>'
    path.write_text(f"{head}{body}<main><h1>study</h1>{parts}</main></body></html>", encoding="utf-8")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(path.as_uri())
        page.screenshot(path=os.environ.get("FA_REGISTRY_SCREENSHOT", str(tmp_path / "seen.png")), full_page=True)
        colour = page.evaluate("getComputedStyle(document.querySelector('.fa-registry td')).color")
        assert colour == page.evaluate("getComputedStyle(document.body).color")
        serious = [
            found["id"]
            for found in Axe().run(page).response["violations"]
            if found["impact"] in ("serious", "critical")
        ]
        assert serious == []


def test_a_method_from_its_skeleton_to_its_form(tmp_path):
    """As own_method.sh has it, but pip installs the package into a folder of its own, offline, instead of this environment."""
    commands = [
        line.split("#")[0].split()
        for line in (EXAMPLES / "own_method.sh").read_text().splitlines()
        if line and line[0] not in "#s"
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), str(tmp_path / "site")])}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    for arguments in commands:
        if arguments[0] == "pip":
            assert arguments == ["pip", "install", "--quiet", "--editable", "my_rule"]  # what `fa-registry new` advises
            arguments = (
                f"{sys.executable} -m pip install -q --no-build-isolation --no-deps --target site ./my_rule".split()
            )
        ended = subprocess.run(
            ["sh", "-c", " ".join(arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"
    assert list((tmp_path / "reports" / "forms").glob("my-rule-*.html"))
