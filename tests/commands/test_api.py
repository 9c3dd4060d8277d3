"""The commands as Python functions: what the command line can do, with the same names, reported by objects and not by printing."""

from __future__ import annotations

import inspect
import logging
import threading
from pathlib import Path

import pytest

import fa_registry
from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.studies import study_files
from tests.commands.conftest import STUDY

pytestmark = pytest.mark.long

COMMANDS = ("audit", "compare", "report", "study", "train", "verify")
# What only one of the two has: how a result is printed and how a process ends; who runs the jobs.
PRINTING = {"as_json", "exit_zero"}
IN_PYTHON = {"train": {"executor"}}
SMALL = {"architecture.d_hidden": 16, "architecture.num_blocks": 2}


@pytest.fixture
def tiny(trained, capfd):
    """The tiny study in the working folder, trained; nothing may have been printed by the end of the test."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_takes_in_python_what_it_takes_on_the_command_line(command):
    typed = {parameter.name for parameter in main.commands[command].params} - PRINTING
    assert typed == set(inspect.signature(getattr(fa_registry, command)).parameters) - IN_PYTHON.get(command, set())


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_left_out_is_the_same_in_both(command):
    python = inspect.signature(getattr(fa_registry, command)).parameters
    typed = main.commands[command].make_context(command, []).params
    for name in typed.keys() - PRINTING - {"operands"}:
        assert _text(typed[name]) == _text(python[name].default), name


def _text(value) -> str:
    """None, no names and an empty text are one nothing."""
    return "" if value is None or value in ((), {}) else str(value)


def test_a_study_is_trained_audited_compared_verified_and_reported(registry, tiny):
    result = fa_registry.study("tiny", jobs=1, device="cpu", force=True)
    assert result.exit_code == 0 and len(result.trained) == 4
    audit = fa_registry.audit(study="tiny", device="cpu", edition="2026-12", out="here")
    assert {run.record.run_id for run in audit.report.runs} == set(result.trained)
    assert audit.report.edition.name == "2026-12" and audit.exit_code in (0, 1)
    compared = fa_registry.compare("dfa", "bp", study="tiny", device="cpu", thresholds={"D1": 7})
    assert compared.page == Path("reports/compare.html") and compared.context.edition.overrides == {"D1.threshold": 7}
    verified = fa_registry.verify(study="tiny", device="cpu")
    assert [found.integrity.state for found in verified] == ["verified"] * 6  # four runs, the verdicts, the pages
    again = fa_registry.report("here/audit.json", out="again")
    assert Path("again/index.html") in again
    assert Path("again/index.html").read_bytes() == Path("here/index.html").read_bytes()


def test_one_configuration_is_trained_once(workplace, capfd):
    asked = {"method": "dfa", "seed": 7, "epochs": 1, "settings": SMALL, "device": "cpu"}
    first, second = fa_registry.train(**asked), fa_registry.train(**asked)
    assert first.status == "complete" and first.run_id == second.run_id
    assert first.result and not second.result
    assert capfd.readouterr() == ("", "")


def test_what_is_wrong_is_an_error_of_this_package_and_ends_nothing(workplace, capfd):
    for command, given in (
        ("train", ()),
        ("audit", ()),
        ("verify", ()),
        ("report", ("none.json",)),
        ("compare", ("dfa",)),
    ):
        with pytest.raises(fa_registry.RegistryError):
            getattr(fa_registry, command)(*given, **({"method": "dfa"} if command == "train" else {}))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("seeds", ["1,2", [1, 2], ("1", "2")])
def test_several_may_be_a_list_or_what_would_be_typed(workplace, seeds):
    Path("study.toml").write_text(STUDY, encoding="utf-8")
    plan = fa_registry.study("study.toml", seeds=seeds, device="cpu", dry_run=True)
    assert plan.settings[0].seeds == (1, 2)
    one = fa_registry.study("study.toml", seeds=7, stop_on="D1", device="cpu", dry_run=True)
    assert one.settings[0].seeds == (7,)


def test_a_listener_receives_what_the_command_line_prints(tiny, caplog):
    caplog.set_level(logging.INFO, "fa_registry")
    fa_registry.study("tiny", device="cpu")
    assert len(caplog.messages) == 1


def test_the_command_line_leaves_no_listener_behind(trained, capfd):
    log = logging.getLogger("fa_registry")
    assert not log.handlers and log.level == logging.NOTSET and log.propagate
    assert len(trained("study", "tiny", "--device", "cpu").stderr.splitlines()) == 1


def test_a_thread_may_train_too(workplace):
    ended = []
    asked = {"method": "bp", "seed": 7, "epochs": 1, "settings": SMALL, "device": "cpu"}
    thread = threading.Thread(target=lambda: ended.append(fa_registry.train(**asked).status))
    thread.start()
    thread.join()
    assert ended == ["complete"]


@pytest.fixture
def readings(monkeypatch):
    """Every reading of a study's file, in order."""
    read: list[Path] = []

    def counting(genuine):
        def counted(path, *arguments, **named):
            if path.name == study_files.FILE:
                read.append(path)
            return genuine(path, *arguments, **named)

        return counted

    for way in ("read_text", "read_bytes"):
        monkeypatch.setattr(Path, way, counting(getattr(Path, way)))
    monkeypatch.setattr(jsonio, "read_file", counting(jsonio.read_file))
    return read


def test_an_audit_reads_its_study_once(tiny, readings):
    fa_registry.audit(study="tiny", device="cpu", trust_logged=True)
    assert len(readings) == 1


def test_run_trains_and_audits_by_one_reading_of_the_study(unpublished, registry, readings):
    assert registry("run", "tiny", "--jobs", "1", "--device", "cpu").exit_code == 0
    assert len(readings) == 1
