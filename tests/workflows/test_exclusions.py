"""What is known of a run that could not be judged: its specification where it can be read, its tags where it cannot."""

from __future__ import annotations

import pytest

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.workflows.selection import exclusion, never_trained, own_spec
from tests.workflows.test_audit import audited, run_of, spoil


def test_a_stored_run_brings_its_specification_and_its_names(trained):
    run = run_of("fa")
    made = exclusion(MlflowTracker(), run, "why", "traceback")
    assert (made.run_id, made.name, made.reason, made.failure) == (run.run_id, run.name, "why", "traceback")
    assert (made.method, made.setting) == ("fa", run.tags[schema.TAG_SETTING])
    assert made.spec.identity == run.tags[schema.TAG_SPEC]
    untrained = never_trained(made.spec)
    assert (untrained.run_id, untrained.method, untrained.setting) == ("", made.method, made.setting)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text(path.read_text().replace('"seed": 1', '"seed": 2')),
    ],
)
def test_a_specification_that_is_gone_broken_or_another_is_not_used(trained, change):
    spoil("fa", schema.SPEC, change)
    assert own_spec(MlflowTracker(), run_of("fa")) is None
    assert exclusion(MlflowTracker(), run_of("fa"), "why").method == "fa"


def test_a_broken_seed_stands_in_its_methods_form_in_all_three_formats(trained, workplace):
    """The other seed is judged, so there is a form: it must not say `in 1 of 1 seeds` and nothing else."""
    again = trained("study", "tiny", "--seeds", "1,2", "--jobs", "1", "--device", "cpu")
    assert again.exit_code == 0, again.output
    runs = MlflowTracker().search({schema.TAG_KIND: "run", schema.TAG_METHOD: "fa"})
    broken = next(run for run in runs if own_spec(MlflowTracker(), run).seed == 2)
    path = MlflowTracker().artifact(broken.run_id, schema.FEEDBACK)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    code, result = audited(trained, "--seeds", "1,2")
    (excluded,) = result["report"]["excluded"]
    assert code == 3 and excluded["spec"]["seed"] == 2
    forms = {path.name: path.read_text() for path in (workplace / "reports" / "forms").iterdir()}
    assert {path.suffix for path in (workplace / "reports" / "forms").iterdir()} == {".html", ".md", ".tex"}
    for name, text in forms.items():
        said = "Not judged, and in none of these figures" in text and "One selected run was not judged (seed 2)" in text
        assert said == name.startswith("fa-"), name
