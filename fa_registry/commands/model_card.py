"""The card of a promoted model in Markdown, from its record: whatever came from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fa_registry.protocol.shipped import DIGEST, edition_words
from fa_registry.reporting.filters import fence, markdown_text, reading
from fa_registry.reporting.identification import words
from fa_registry.training.model_folder import ModelCard, Opinion

PROVENANCE = (
    "commit",
    "dirty",
    "versions",
    "hardware",
    "threads",
    "dataset_digest",
    "parameters",
    "epochs_run",
    "origin",
)


def model_card_text(card: ModelCard, name: str) -> str:
    """The card of a version of the registered model `name`. The reason of a promotion despite the verdict stands first."""
    lines = [*_head(card), "", *_facts(card, name)]
    for opinion in card.opinions:
        lines += ["", *_opinion(opinion)]
    lines += ["", "## Files (SHA-256)", "", *(f"- {name}: {digest}" for name, digest in card.digests.items())]
    known = {name: card.provenance[name] for name in PROVENANCE if name in card.provenance}
    lines += ["", "## Provenance", "", *_mapping(known)]
    if card.feedback:
        lines += ["", "## Feedback", "", *_mapping(card.feedback)]
    lines += ["", "## Citation", "", markdown_text(card.citation or "none recorded")]
    return "\n".join([*lines, *(["", fence(card.bibtex)] if card.bibtex else [])]) + "\n"


def _head(card: ModelCard) -> Iterator[str]:
    deciding = card.opinions[0]
    label = markdown_text(deciding.verdict.label)
    if card.despite:
        author, reason = markdown_text(card.despite.author), markdown_text(card.despite.reason)
        yield f"**Promoted despite {label}** by {author}: {reason}"
        yield ""
    control = f"**{markdown_text(card.control)} control** · " if card.control != "none" else ""
    edition = markdown_text(f"{edition_words(deciding.edition)}, sha256 {deciding.edition.digest[:DIGEST]}")
    yield f"{control}**{label}** by edition {edition} · {markdown_text(card.method)} · {markdown_text(card.setting)}"
    if others := "; ".join(f"{one.verdict.label} by {edition_words(one.edition)}" for one in card.opinions[1:]):
        yield ""
        yield f"Other editions: {markdown_text(others)}"


def _facts(card: ModelCard, name: str) -> Iterator[str]:
    details = "; ".join(card.integrity.details)
    reason = f": {markdown_text(card.accuracy.reason)}" if card.accuracy.reason else ""
    yield f"- test accuracy: {reading(card.accuracy, 'pct')}{reason} (run {markdown_text(card.run_id)})"
    yield f"- run: {markdown_text(card.run_name)}; audit run {markdown_text(card.audit_run_id)}"
    yield f"- figures {markdown_text(card.integrity.state)}: {markdown_text(details)}"
    yield f"- specification: {card.identity}"
    yield f'- to load it: fa\\_registry.load\\_model("models:/{markdown_text(name)}/VERSION")'


def _opinion(opinion: Opinion) -> Iterator[str]:
    modified = " (modified)" if opinion.edition.overrides else ""
    yield f"## {markdown_text(opinion.verdict.label)} by {markdown_text(edition_words(opinion.edition))}{modified}"
    yield ""
    yield f"Edition sha256 {opinion.edition.digest}"
    yield ""
    for finding in opinion.findings:
        gates = "" if finding.gating else ", does not gate"
        yield f"- {markdown_text(finding.outcome)}{gates}: {markdown_text(finding.sentence)}"
    if not opinion.findings:
        yield "- No rule judged this run."


def _mapping(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield f"- {markdown_text(name)}: {markdown_text(words(value))}"
