"""The entry points of MLproject, started by `mlflow run` as README says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest
import yaml
from mlflow import projects
from mlflow.exceptions import ExecutionException

from fa_registry.cli import main
from fa_registry.reporting.labels import command as line
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.specs import parse_spec
from tests.end_to_end.conftest import ROOT


@pytest.fixture
def mlflow_run(command, monkeypatch, capfd):
    """mlflow_run(entry point, parameters) → (whether it succeeded, what was printed): its process as `mlflow run` starts it."""
    for name in ("MLFLOW_TRACKING_URI", "PATH"):
        monkeypatch.setenv(name, command.environment[name])

    def run(entry_point: str, parameters: Mapping[str, str], experiment: str | None = None) -> tuple[bool, str]:
        try:
            projects.run(str(ROOT), entry_point, parameters=parameters, experiment_name=experiment, env_manager="local")
        except ExecutionException:
            return False, "".join(capfd.readouterr())
        return True, "".join(capfd.readouterr())

    return run


def all_runs(workplace):
    """Those of the package, and at most one more row, named after what was launched last: MLflow itself still needs it then."""
    runs = MlflowTracker(f"sqlite:///{workplace / 'mlflow.db'}").search({})
    launched = [run for run in runs if run.tags[schema.TAG_KIND] == schema.LAUNCH]
    assert len(launched) <= 1 and all(run.name.startswith("mlflow run: ") for run in launched)
    return [run for run in runs if run not in launched]


@pytest.mark.long
def test_the_line_a_form_prints_trains_the_same_specification_once(command, workplace):
    """In the package's experiment, with a name; started again it leaves nothing, as the run is there."""
    network = {"architecture": "resmlp", "architecture_options": {"d_hidden": 16, "terminal_ln": False}}
    recipe = {"dataset": "digits", "seed": 7, "epochs": 1, "penalty": 0.01, "learning_rate": 0.003, "device": "cpu"}
    spec = parse_spec({"method": "dfa", **network, **recipe})
    arguments = shlex.split(line(spec))
    assert arguments[:3] == ["mlflow", "run", "."]
    for _ in range(2):
        ended = command(arguments[0], *arguments[1:], cwd=ROOT)
        assert ended.returncode == 0, ended.stderr
        (run,) = all_runs(workplace)
        assert run.tags[schema.TAG_SPEC] == spec.identity and run.experiment == schema.EXPERIMENT
        assert (run.state, run.tags[schema.TAG_STATUS]) == ("FINISHED", "complete")


@pytest.mark.long
def test_an_experiment_that_the_user_names_gets_the_run_that_mlflow_started(mlflow_run, workplace):
    assert not mlflow_run("train", {"method": "dfaa", "epochs": "notafloat"})[0] and all_runs(workplace) == []
    succeeded, printed = mlflow_run("train", {"method": "dfa", "seed": "7", "epochs": "1"}, "mine")
    assert succeeded, printed
    (run,) = all_runs(workplace)
    assert run.experiment == "mine" and run.params["method"] == "dfa"  # MLflow's own record of what was typed
    assert (run.state, run.tags[schema.TAG_STATUS]) == ("FINISHED", "complete")


@pytest.mark.long
def test_main_trains_audits_and_reports(mlflow_run, workplace):
    study, out = workplace / "tiny", workplace / "out"
    succeeded, printed = mlflow_run("main", {"study": str(study), "out": str(out), "jobs": "1"})
    assert succeeded, printed
    assert (out / "index.html").is_file() and (out / "audit.json").is_file()
    kinds = [run.tags[schema.TAG_KIND] for run in all_runs(workplace)]
    assert sorted(kinds) == ["audit", "run", "run", "run", "run", "study"]
    assert {(run.state, run.experiment) for run in all_runs(workplace)} == {("FINISHED", schema.EXPERIMENT)}


@pytest.mark.long
def test_audit_verify_and_report_follow_a_study_of_other_epochs_and_seeds(mlflow_run, workplace):
    """Without its epochs and seeds nothing is selected, and what the store has is named."""
    study, shorter = str(workplace / "tiny"), {"epochs": "1", "seeds": "7"}
    succeeded, printed = mlflow_run("study", {"study": study, "jobs": "1", "device": "cpu", **shorter})
    assert succeeded, printed
    for entry_point in ("audit", "verify"):
        succeeded, printed = mlflow_run(entry_point, {"study": study})
        assert not succeeded and "--epochs 1 --seeds 7" in printed
    pages = {name: workplace / name for name in ("audited", "rendered")}
    succeeded, printed = mlflow_run("verify", {"study": study, **shorter})
    assert succeeded, printed
    mlflow_run(
        "audit", {"study": study, "out": str(pages["audited"]), **shorter}
    )  # fails where a run fails the protocol
    succeeded, printed = mlflow_run("report", {"study": study, "out": str(pages["rendered"]), **shorter})
    assert succeeded, printed
    audited, rendered = ((folder / "audit.json").read_bytes() for folder in pages.values())
    assert audited == rendered
    succeeded, printed = mlflow_run("report", {"study": study, "out": str(workplace / "none"), "epochs": "2"})
    assert not succeeded and "epochs=1, seeds=7" in printed


def test_every_entry_point_is_a_command_with_those_options():
    entries = yaml.safe_load((ROOT / "MLproject").read_text())["entry_points"]
    assert set(entries) == {"main", "train", "study", "audit", "verify", "report", "test"}
    for name, entry in entries.items():
        arguments = entry["command"].split()
        assert arguments[0] == "python"
        if name != "test":
            options = {option for parameter in main.commands[arguments[3]].params for option in parameter.opts}
            assert {word for word in arguments if word.startswith("--")} <= options
        assert all(f"{{{parameter}}}" in entry["command"] for parameter in entry.get("parameters", {}))
        assert name not in ("audit", "verify", "report") or {"study", "epochs", "seeds"} <= set(entry["parameters"])
