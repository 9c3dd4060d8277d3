"""A specification is checked alike with the cards of cards.json and with the imported plug-ins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from fa_registry import architectures, datasets, diagnostics, jsonio, methods, tasks
from fa_registry.errors import InvalidFields, Problem, RegistryError
from fa_registry.plugin_registry import Catalog
from fa_registry.training.code_fingerprint import fingerprint
from fa_registry.training.specs import parse_spec, run_name
from tests.helpers.covering import every_method

KINDS = {"method": methods.CATALOG, "architecture": architectures.CATALOG, "dataset": datasets.CATALOG}
DATASETS = (
    *datasets.CATALOG.builtin_names(),
    "random_targets:digits",
    "text:absent.txt",
    "nonsense",
    "digits:nonsense",
)
BASE = {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 1, "epochs": 2, "device": "cpu"}


@pytest.fixture
def both_ways(monkeypatch):
    """Call a function with recorded descriptions, then with imported plug-ins; return both results."""

    def call(function: Any, *arguments: Any) -> tuple[Any, Any]:
        results = []
        for entry in (
            lambda self, name: self.recorded.get(name, {}) if self.location(name) else {},
            lambda self, name: {},
        ):
            with monkeypatch.context() as patch:
                patch.setattr(Catalog, "_entry", entry)
                results.append(function(*arguments))
        return results[0], results[1]

    return call


def parsed(fields: dict[str, Any]) -> Any:
    """Identity, options, name and code of the specification, or the message of the error."""
    try:
        spec = parse_spec({**BASE, **fields})
    except RegistryError as error:
        return f"{type(error).__name__}: {error}"
    return spec.identity, jsonio.pretty(spec), run_name(spec), fingerprint(spec, by_record=True)


def options_of(plugin_kind: str, name: str) -> Iterator[dict[str, Any]]:
    """Valid and invalid values of each option, alone, and an unknown option."""
    options = KINDS[plugin_kind].get(name).card.options
    yield {"nonsense": 1}
    for option, declared in options.items():
        yield from ({option: value} for value in (declared.default, *declared.choices, 0, 3, -1, 7.5, True, "nonsense"))


@pytest.mark.parametrize("catalog", [*KINDS.values(), tasks.CATALOG], ids=lambda one: one.family)
def test_every_built_in_plugin_has_a_recorded_description_equal_to_its_own(catalog):
    assert set(catalog.recorded) == set(catalog.builtin_names())
    for name, plugin in catalog.built_in().items():
        own, decoded = catalog.description_of(plugin), catalog._decoded(name)
        assert own == decoded, name
        for option, declared in getattr(own.card, "options", {}).items():  # 1 == 1.0 == True
            default = decoded.card.options[option].default
            assert type(default) is type(declared.default), (name, option)


def test_after_its_import_a_plugin_answers_itself(monkeypatch):
    catalog = Catalog("architectures", "architecture", "base:Architecture", card="_card:ArchitectureCard")
    plugin = catalog.get("resmlp")
    monkeypatch.setattr(plugin, "card", dataclasses.replace(plugin.card, version=7))
    assert catalog.describe("resmlp").card.version == catalog.code("resmlp")["version"] == 7
    catalog.disable("mlp", "is broken")
    with pytest.raises(RegistryError, match="is broken"):
        catalog.describe("mlp")


def test_a_check_of_the_object_itself_is_asked(monkeypatch):
    monkeypatch.setattr(architectures.CATALOG.get("resmlp"), "check", lambda *_: [Problem((), "refused by the object")])
    with pytest.raises(InvalidFields, match="refused by the object"):
        parse_spec(BASE)


def test_the_recorded_versions_of_diagnostics_are_their_own():
    recorded = {name: entry["card"]["version"] for name, entry in diagnostics.CATALOG.recorded.items()}
    assert recorded == {name: plugin.card.version for name, plugin in diagnostics.CATALOG.built_in().items()}


@pytest.mark.parametrize("method", every_method())
def test_every_combination_is_accepted_or_refused_alike(method, both_ways):
    for architecture, dataset in product(architectures.CATALOG.builtin_names(), DATASETS):
        fields = {"method": method, "architecture": architecture, "dataset": dataset}
        recorded, own = both_ways(parsed, fields)
        assert recorded == own, fields


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("method", "architecture") for name in KINDS[kind].builtin_names()]
)
def test_options_are_accepted_or_refused_alike(kind, name, both_ways):
    dataset = "markov_text" if name == "causal_transformer" else "digits"
    for options in options_of(kind, name):
        fields = {kind: name, f"{kind}_options": options, "dataset": dataset}
        recorded, own = both_ways(parsed, fields)
        assert recorded == own, fields


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": 10**6},
        {"precision": "bf16", "method": "usf"},
        {"control": "frozen"},
        {"control": "shallow", "method": "bp", "penalty": 1.0},
        {"control": "ladder_9"},
        {"d_hiden": 3},
        {"method": "dfaa", "architecture": "remlp"},
        {"architecture": "small_cnn", "architecture_options": {"num_blocks": 7}},
    ],
    ids=str,
)
def test_other_fields_are_accepted_or_refused_alike(fields, both_ways):
    recorded, own = both_ways(parsed, fields)
    assert recorded == own and isinstance(own, str)


def test_a_wrong_number_of_blocks_is_a_message():
    with pytest.raises(InvalidFields, match="num_blocks: expected one of 0, 1, 2, 3, found 7"):
        parse_spec({**BASE, "architecture": "small_cnn", "architecture_options": {"num_blocks": 7}})
