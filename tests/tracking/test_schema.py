"""Names in the store: what MLflow takes, and what must not take another's place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import fa_registry
from fa_registry import architectures
from fa_registry.records import EditionReference, Measurements, Reading
from fa_registry.studies.study import load_study, names
from fa_registry.tracking import schema
from tests.tracking.conftest import write_run


@pytest.mark.parametrize(
    ("edition", "modified", "tag"),
    [
        ("2026-05", False, "fa.verdict.2026-05.1a2b3c4d"),
        ("2026-05", True, "fa.verdict.2026-05.1a2b3c4d.modified"),
        ("2026-04:first-release", False, "fa.verdict.2026-04:first-release.1a2b3c4d"),
        ("it's (mine) a/b//c", False, "fa.verdict.it_s _mine_ a_b__c.1a2b3c4d"),
        ("x" * 400, True, f"fa.verdict.{'x' * 200}.1a2b3c4d.modified"),
    ],
)
def test_the_verdict_of_any_edition_can_be_stored_and_found(tracker, edition, modified, tag):
    overrides = {"D1.threshold": 1.0} if modified else {}
    assert schema.verdict_tag(EditionReference(edition, "", "", "1a2b3c4d" * 8, overrides)) == tag
    run_id = tracker.create("run", {}, {})
    tracker.log(run_id, tags={tag: "PASS"})
    assert [run.run_id for run in tracker.search({tag: "PASS"})] == [run_id]


def test_a_tag_is_there_while_the_run_is_written(tracker):
    writer, _, _ = write_run(tracker)
    writer.tag({schema.first_fire_tag("D1"): "8"})
    writer.flush()
    assert tracker.get(writer.run_id).tags["fa.first_fire.D1"] == "8"


# A run has the main metric of one task: without those of tokens, or without accuracies.
OF_A_RUN = [name for name in schema.SCALAR_METRICS if not name.startswith("accuracy")]


def keys_at(sites, *further):
    """Metric keys of a run with that many sites and everything there is to measure. further: third-party site metrics."""
    row = {name: tuple(map(Reading, map(float, range(sites)))) for name in (*schema.SITE_METRICS, *further)}
    return dict(schema.metrics(Measurements(row, dict.fromkeys(OF_A_RUN, Reading(1.0))), further))


THIRD_PARTY = [f"strange_{place}" for place in range(schema.MOST_CHARTS)]


@pytest.mark.parametrize("further", [[], THIRD_PARTY[:1], THIRD_PARTY], ids=len)
@pytest.mark.parametrize("sites", [1, 2, 17, 18, 25, 41, 100, 101, 1001])
def test_a_run_of_any_depth_has_at_most_a_hundred_metrics_with_the_first_and_the_last_site(sites, further):
    keys = keys_at(sites, *further)
    assert len({*keys, "margin_pp"}) <= schema.MAX_METRICS
    shown = [key for key in keys if key.startswith(f"gamma{schema.SITE_MARK}")]
    assert shown == sorted(shown) and len(shown) == min(sites, schema.most_sites(further)) > 0
    assert [keys[key].value for key in (shown[0], shown[-1])] == [0.0, float(sites - 1)]
    assert [int(key.removeprefix("gamma/site_")) for key in shown] == [keys[key].value for key in shown]


def test_every_shipped_architecture_shows_all_its_sites():
    """At every depth that a built-in study trains, and at its default."""
    depths = {
        option.default for name in architectures.CATALOG.names() for option in _blocks(architectures.CATALOG.get(name))
    }
    for study in names():
        depths |= {spec.architecture_options.get("num_blocks", 0) for spec in load_study(study).specs}
    assert max(depths) > 4
    for depth in depths:
        assert schema.shown_sites(depth + 1) == tuple(range(depth + 1))
        assert len({*keys_at(depth + 1), "margin_pp"}) <= schema.MAX_METRICS


def _blocks(architecture):
    return [option for name, option in architecture.card.options.items() if name == "num_blocks"]


PACKAGE = Path(fa_registry.__file__).parent
DECLARED_IN = PACKAGE / "tracking" / "schema.py"
MODULES = ("mlflow.store.",)  # modules of MLflow, which are imported or whose loggers are silenced: no tags
PREFIXES = (schema.TAGS, "mlflow.", schema.PARAM, "checkpoints/", "feedback/", "report/")


def declared_paths():
    """Metric keys and artifact paths of schema.py. A plain word, such as the folder `resume`, also has other meanings."""
    texts = {value for value in vars(schema).values() if isinstance(value, str)} | set(schema.SCALAR_METRICS.values())
    return {text for text in texts if re.fullmatch(r"[\w.]+[./][\w./]+", text)}


def names_as_text(source):
    """Yield (line, text) of every tag, parameter, metric key or artifact path in the strings of a module."""
    tree = ast.parse(source)
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values[1:]}
    paths = declared_paths()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node in parts:
            continue
        is_prefixed = node.value.startswith(PREFIXES) and not node.value.startswith(MODULES) and " " not in node.value
        if is_prefixed or node.value in paths:
            yield node.lineno, node.value


@pytest.mark.long
def test_only_one_module_declares_tags_parameters_keys_and_paths():
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != DECLARED_IN
        for line, text in names_as_text(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'run.tags.get("fa.study")',
        'tags = {f"fa.first_fire.{rule}": "8"}',
        'tags = {"mlflow.user": name}',
        'FREE = ("cfg/seed", *others)',
        'params = {f"cfg/{name}": text}',
        'path = f"checkpoints/epoch_{epoch:04d}.safetensors"',
        'tracker.artifact(run_id, "measurements.json")',
        'tracker.artifact(audit_id, "audit.json")',
        'run.metrics.get("loss/test_per_token")',
    ],
)
def test_a_name_as_text_is_found(source):
    assert list(names_as_text(source))


@pytest.mark.parametrize(
    "source",
    ['"""Read audit.json, and the tag `fa.study`."""', 'TRACEBACKS = "mlflow.store.db.utils"', 'f"{name}.fa.zip"'],
)
def test_a_sentence_or_a_module_is_no_name_of_the_store(source):
    assert not list(names_as_text(source))
