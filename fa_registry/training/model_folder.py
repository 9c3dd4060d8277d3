"""A promoted model as a folder of files.

The folder contains weights, feedback state, specification, and a card with the SHA-256 of these files. Tensors are stored as
safetensors and all other content as text. Therefore no code of the folder is executed when it is read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from fa_registry import jsonio
from fa_registry.architectures.base import Network
from fa_registry.errors import IntegrityError, InvalidFields
from fa_registry.methods.base import Method
from fa_registry.records import EditionReference, Finding, Integrity, Reading, RunSpec, Verdict
from fa_registry.safe_files import UnreadableFile, check_file
from fa_registry.seeding import generator
from fa_registry.training.checkpoint import load_into
from fa_registry.training.run_setup import blank_input, build_network, network_shape
from fa_registry.training.spec_plugins import find_plugins

NETWORK = "network.safetensors"
FEEDBACK = "feedback.safetensors"
SPEC = "spec.json"
CARD = "card.json"
CARD_TEXT = "card.md"
CARD_SCHEMA = 1


@dataclass(frozen=True)
class Opinion:
    """The verdict and the findings about the run, according to one edition."""

    edition: EditionReference
    verdict: Verdict
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class PromotionOverride:
    """The reason and the author of a promotion that disregards the verdict."""

    reason: str
    author: str


@dataclass(frozen=True)
class ModelCard:
    """The facts about a promoted model.

    Attributes:
        method, setting: names of the method and of the setting, as shown on pages.
        control: name of the control, or "none".
        identity: SHA-256 of the specification.
        accuracy: accuracy on the whole test set.
        opinions: the verdict of every edition in the audit `audit_run_id`. The first edition decided the promotion.
        integrity: whether the recomputation before the promotion reproduced the metrics.
        digests: name of a file in the folder → SHA-256.
        despite: the reason and the author of a promotion that disregards the verdict, or None.
        feedback: description of the feedback state, copied from the run's record.
        provenance: origin of the run, such as code and machine, copied from its record.
    """

    method: str
    setting: str
    control: str
    run_id: str
    run_name: str
    identity: str
    accuracy: Reading
    opinions: tuple[Opinion, ...]
    audit_run_id: str
    integrity: Integrity
    digests: Mapping[str, str]
    despite: PromotionOverride | None = None
    feedback: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    citation: str = ""
    bibtex: str = ""
    schema: int = CARD_SCHEMA


@dataclass(frozen=True)
class LoadedModel:
    """A promoted model, ready to use, with the network in eval mode on the CPU.

    The feedback state contains no tensors if the method has no feedback. It is None if the run was adopted without its feedback
    state, because newly drawn feedback would differ from that of the training.
    """

    network: Network
    feedback: nn.Module | None
    method: Method
    spec: RunSpec
    card: ModelCard

    def __repr__(self) -> str:
        weights = sum(parameter.numel() for parameter in self.network.parameters())
        return f"LoadedModel({self.card.run_name!r}, {weights:,} parameters)"


def fill_folder(folder: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Copy files (name → source path) into the folder, made if missing; return name → SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in files.items():
        shutil.copyfile(check_file(path), folder / name)
    return {name: jsonio.file_digest(folder / name) for name in files}


def read_folder(folder: Path, card_digest: str = "") -> LoadedModel:
    """Check the SHA-256 of every file in a folder, and load the promoted model.

    Args:
        card_digest: SHA-256 of card.json, or an empty string if it is unknown.

    Raises:
        IntegrityError: if a file is missing or its SHA-256 differs from that in the card.
        UnknownName: if a plug-in of the model is not installed.
    """
    card = _card(folder, card_digest)
    for name in (SPEC, *({CARD_TEXT} & card.digests.keys())):  # older cards have no digest of the text for readers
        _check(folder, name, card.digests.get(name, "none recorded"))
    try:
        spec = jsonio.decode(RunSpec, _json(folder / SPEC), SPEC)
    except InvalidFields as error:
        raise IntegrityError(f"{folder} contains no promoted model: {error}") from error
    if spec.identity != card.identity:
        raise IntegrityError(
            f"{folder}: expected one identity, found {spec.identity} in {SPEC} and {card.identity or 'none'} in {CARD}"
        )
    method, dataset = find_plugins(spec).method, find_plugins(spec).card
    network = build_network(spec, dataset)
    shape = network_shape(network, blank_input(spec, dataset), dataset.classes)
    feedback = method.feedback(shape, spec.method_options, generator(spec.seed, "feedback"))
    load_into(network, folder / NETWORK, card.digests.get(NETWORK, "none recorded"))
    has_state = bool(feedback.state_dict())
    if has_state and FEEDBACK in card.digests:
        load_into(feedback, folder / FEEDBACK, card.digests[FEEDBACK])
    loaded_feedback = feedback.eval() if not has_state or FEEDBACK in card.digests else None
    return LoadedModel(network.eval(), loaded_feedback, method, spec, card)


def _card(folder: Path, digest: str) -> ModelCard:
    if digest:
        _check(folder, CARD, digest)
    try:
        raw = _json(folder / CARD)
        if isinstance(raw, Mapping) and raw.get("schema") != CARD_SCHEMA:
            raise InvalidFields(CARD, [f"schema: expected {CARD_SCHEMA}, found {raw.get('schema')!r}"])
        return jsonio.decode(ModelCard, raw, CARD)
    except InvalidFields as error:
        raise IntegrityError(f"{folder} contains no promoted model: {error}") from error


def _json(path: Path) -> Any:
    try:
        return jsonio.read_json(path)
    except UnreadableFile as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise IntegrityError(f"{path.parent} contains no promoted model: {path.name} is missing") from error
        raise


def _check(folder: Path, name: str, expected: str) -> None:
    path = folder / name
    digest = jsonio.file_digest(check_file(path)) if os.path.lexists(path) else "no such file"
    if digest != expected:
        raise IntegrityError(
            f"{path}: expected SHA-256 {expected}, found {digest}; the file was changed after the promotion"
        )
