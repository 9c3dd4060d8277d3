"""Python on a page compiles; what is marked as running runs; a block that is named as a file equals that file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fa_registry.conformance.__main__ import main
from fa_registry.datasets._files import OPERATORS
from tests.docs.pages import PAGES, ROOT, blocks
from tests.helpers.plugins import installed

BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
RUNNABLE = [block for block in PYTHON if block.mark == "runs"]
FILES = [block for block in BLOCKS if block.mark.startswith("file: ")]


def labelled(block) -> str:
    return f"{block.page}:{block.text.splitlines()[0]}"


@pytest.mark.parametrize("block", PYTHON, ids=labelled)
def test_it_compiles(block):
    assert compile(block.text, block.page, "exec")


def runnable(block):
    """Leave a page that loads transformers, which takes ten seconds, to the long tests."""
    return pytest.param(block, marks=[pytest.mark.long] if "transformers" in block.text else [], id=labelled(block))


@pytest.mark.parametrize("block", [runnable(block) for block in RUNNABLE])
def test_it_runs(block, workplace, undrawn):
    """In this process, which has imported all that it takes seconds to import; but what changes torch for good in its own."""
    if "transformers" in block.text:
        pytest.importorskip("transformers")
    if "torchvision" in block.text:
        ended = subprocess.run([sys.executable, "-c", block.text], capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stderr
    else:
        exec(compile(block.text, block.page, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.mark)
def test_it_is_the_file_that_the_page_names(block):
    assert block.text == (ROOT / block.mark.removeprefix("file: ")).read_text(encoding="utf-8")


def test_a_search_for_the_error_of_torchvision_finds_what_to_call():
    text = (ROOT / "docs/own-model.md").read_text(encoding="utf-8")
    assert f"operator torchvision::{OPERATORS[0]} does not exist" in text
    assert any("fa_registry.torchvision()" in block.text for block in RUNNABLE if block.page == "docs/own-model.md")


def test_a_custom_backward_pass_has_the_verdicts_that_the_page_states(capsys):
    block = next(block for block in RUNNABLE if "torch.autograd.Function" in block.text)
    exec(compile(block.text, block.page, "exec"), {"__name__": "page"})
    backward, forward = capsys.readouterr().out.split("INCOMPLETE\n")
    assert "at sites 0, 1:" in backward
    assert forward.endswith("PASS\n") and "traced forward pass" in forward


OWN_METHOD = "python -m fa_registry.conformance orthogonal_dfa --architecture resmlp"


def conformance(capsys) -> dict[str, str]:
    """property → outcome, as the page's own command prints them."""
    main(OWN_METHOD.split()[3:])
    return {columns[1]: columns[0] for columns in map(str.split, capsys.readouterr().out.splitlines())}


@pytest.mark.long
def test_the_method_of_the_page_is_what_the_page_says_of_it(tmp_path, capsys):
    assert OWN_METHOD in (ROOT / "docs/own-method.md").read_text(encoding="utf-8")
    with installed(tmp_path) as plugin:
        good = conformance(capsys)
        plugin.edit("inputs.error @", "-inputs.error @")
        wrong = conformance(capsys)
    assert "fail" not in good.values() and good["feedback_fixed"] == good["output_jacobian_gives_bp"] == "pass"
    assert [name for name in wrong if wrong[name] == "fail"] == ["output_jacobian_gives_bp"]


def test_marks_are_known_and_used():
    assert {block.mark.partition(":")[0] for block in BLOCKS} == {"", "runs", "file"}
    assert len(RUNNABLE) >= 3 and len(FILES) >= 2


def test_a_loop_and_its_control_need_six_added_lines():
    block = next(block for block in RUNNABLE if block.page == "docs/own-loop.md" and "control" in block.text)
    added = [line for line in block.text.splitlines() if "# added" in line or line == "import fa_registry"]
    assert len(added) <= 6, added
    unmarked = [line for line in block.text.splitlines() if "fa_registry" in line or "run." in line]
    assert set(unmarked) <= set(added)
