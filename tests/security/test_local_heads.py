"""A run of one control that claims to be another: blocks trained with local heads, and blocks that were never trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fa_registry import jsonio
from fa_registry.records import RunSpec
from fa_registry.tracking import schema
from tests.security.attacks import Store
from tests.security.conftest import audited

pytestmark = pytest.mark.long
GRID = {"methods": ["mono_forward"], "architectures": ["mlp"], "datasets": ["digits"], "seeds": [1]}


@pytest.mark.parametrize(("control", "claimed"), [("deep_supervision", "frozen"), ("frozen", "deep_supervision")])
def test_a_control_that_claims_to_be_the_other_is_not_judged(study, control, claimed):
    honest = study(epochs=2, controls={"deep_supervision": True}, **GRID)
    assert not honest.excluded and len(honest.runs) == 3
    store = Store(Path.cwd())
    run_id, replaced = store.run_id(control=control), store.run_id(control=claimed)
    spec = jsonio.decode(RunSpec, store.json(run_id, schema.SPEC))
    store.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", replaced)
    store.restate(run_id, dataclasses.replace(spec, control=claimed))
    chosen = [argument for one in store.run_ids() if one != replaced for argument in ("--run", one)]
    _, report = audited(store.folder, *chosen, "--device", "cpu")
    assert [one.run_id for one in report.excluded] == [run_id]
