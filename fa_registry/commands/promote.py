"""The promote verb: a judged run's final weights become a version of a registered model, its verdict travelling with it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fa_registry import jsonio, methods
from fa_registry.commands.audit_log import marked
from fa_registry.commands.judged import opinions
from fa_registry.commands.model_card import model_card_text
from fa_registry.commands.promotable import (
    check_aliases,
    check_finished,
    check_words,
    justified,
    model_name,
    verdict_alias,
    verified,
)
from fa_registry.commands.selection import whole_id
from fa_registry.commands.stores import open_tracker
from fa_registry.errors import IntegrityError
from fa_registry.protocol.shipped import edition_words
from fa_registry.records import Reading, RunRecord
from fa_registry.tracking import models, schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.models import ModelRegistry, RegisteredVersion
from fa_registry.training import model_folder
from fa_registry.training.model_folder import Despite, ModelCard, Opinion

FOLDER = "promoted"  # of the run's artifacts; the files of every version lie in a folder of their own below it
FILES = {model_folder.NETWORK: schema.FINAL, model_folder.FEEDBACK: schema.FEEDBACK, model_folder.SPEC: schema.SPEC}


@dataclass(frozen=True)
class PromoteRequest:
    """What to promote. run: an id or its beginning. name: of the registered model; aliases: beside the verdict's own.

    edition: whose verdict decides; empty for the leading one of the newest audit. despite: why, where that verdict is a FAIL.
    author: of `despite`; empty for the user's login name.
    """

    run: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    edition: str = ""
    despite: str | None = None
    author: str = ""
    store: str = ""
    data_root: str = ""


@dataclass(frozen=True)
class Promotion:
    """promoted: False where the version was there already. aliases: those that were set now. reference: for load_model.

    verdict, edition: those that decided. verdicts: of every edition of the audit, by its words.
    """

    name: str
    version: str
    reference: str
    run_id: str
    verdict: str
    edition: str
    promoted: bool
    verdicts: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    despite: str = ""


@dataclass(frozen=True)
class _Case:
    """A run that may be promoted: as it is, as it was judged, and why all the same."""

    record: RunRecord
    opinions: tuple[Opinion, ...]
    audit_run_id: str
    despite: Despite | None

    @property
    def deciding(self) -> Opinion:
        return self.opinions[0]

    @property
    def verdict_tags(self) -> dict[str, str]:
        return {schema.verdict_tag(one.edition): one.verdict.label for one in self.opinions}

    @property
    def key(self) -> str:
        """Equal for the same run with the same verdicts and reason: promoting it twice makes one version."""
        weights = [self.record.digests.get(name, "") for name in FILES.values()]
        edition = [self.deciding.edition.name, self.deciding.edition.digest]
        return jsonio.digest_of([self.record.run_id, weights, edition, self.verdict_tags, self.despite])


def run_promote(request: PromoteRequest) -> Promotion:
    """Register the run's final weights with card, feedback and specification; nothing is written before all is checked.

    Every figure of the run is measured again, as `verify` does. Raises InvalidFields, UsageError (not finished, not audited, a
    FAIL without a reason), IntegrityError (a file or a figure is not what was recorded), StoreError.
    """
    check_words(request.name, request.aliases, request.despite)
    tracker = open_tracker(request.store, create=False)
    case = _case(request, tracker)
    name = request.name or model_name(case.record.spec, case.record.setting)
    registry = ModelRegistry(tracker.uri)
    present = next((one for one in registry.versions(name) if one.tags.get(models.TAG_PROMOTION) == case.key), None)
    version = present or _register(tracker, registry, case, name)
    # a version that was there keeps its place: a newer one may have taken the verdict's alias
    aliases = tuple(dict.fromkeys([*([] if present else [verdict_alias(case.deciding)]), *request.aliases]))
    for alias in aliases:
        registry.set_alias(version, alias)
    return Promotion(
        name=name,
        version=version.version,
        reference=version.reference,
        run_id=case.record.run_id,
        verdict=case.deciding.verdict.label,
        edition=edition_words(case.deciding.edition),
        promoted=present is None,
        verdicts={edition_words(one.edition): one.verdict.label for one in case.opinions},
        aliases=aliases,
        despite=case.despite.reason if case.despite else "",
    )


def _case(request: PromoteRequest, tracker: Tracker) -> _Case:
    """The run with all that decides, the cheap refusals before it is measured again."""
    run = tracker.get(whole_id(tracker, request.run))
    check_finished(run)
    audit_run_id, said = opinions(tracker, run, request.edition)
    check_aliases(request.aliases, said[0])
    despite = justified(run, said[0], request.despite, request.author)
    record = verified(tracker, run, request.data_root)
    return _Case(record, said, audit_run_id, despite)


def _register(tracker: Tracker, registry: ModelRegistry, case: _Case, name: str) -> RegisteredVersion:
    """Upload the version's files as artifacts of the run, where a server lets a version point to, and register them."""
    path = f"{FOLDER}/{case.key[:16]}"
    with tempfile.TemporaryDirectory(prefix="fa_registry-promote-") as upload:
        folder = Path(upload) / path
        card = _card(case, _copied(tracker, case.record, folder))
        text = model_card_text(card, name)
        (folder / model_folder.CARD).write_text(jsonio.pretty(card), encoding="utf-8")
        (folder / model_folder.CARD_TEXT).write_bytes(text.encode("utf-8", errors="backslashreplace"))
        tags = {models.TAG_CARD: jsonio.file_digest(folder / model_folder.CARD), **_tags(case, card)}
        tracker.upload(case.record.run_id, Path(upload))
    return registry.register(name, case.record.run_id, path, tags, text)


def _copied(tracker: Tracker, record: RunRecord, folder: Path) -> dict[str, str]:
    """Copy the run's files into `folder`; their digests, which are the recorded ones, else IntegrityError."""
    found = {
        name: tracker.artifact(record.run_id, artifact)
        for name, artifact in FILES.items()
        if artifact in record.digests  # a file that was never recorded is nobody's evidence
    }
    missing = [FILES[name] for name, path in found.items() if path is None]
    if missing:
        raise IntegrityError(f"run {record.run_id}: {', '.join(missing)} missing")
    digests = model_folder.fill_folder(folder, found)
    changed = [FILES[name] for name, digest in digests.items() if digest != record.digests[FILES[name]]]
    if changed:
        raise IntegrityError(f"run {record.run_id}: {', '.join(changed)}: not the file that was recorded")
    return digests


def _card(case: _Case, digests: dict[str, str]) -> ModelCard:
    record = case.record
    method = methods.CATALOG.get(record.spec.method).card
    return ModelCard(
        method=record.spec.label,
        setting=record.setting,
        control=record.spec.control,
        run_id=record.run_id,
        run_name=record.name,
        identity=record.spec.identity,
        accuracy=record.measurements.scalars.get("accuracy", Reading(None, "not measured")),
        opinions=case.opinions,
        audit_run_id=case.audit_run_id,
        integrity=record.integrity,
        digests=digests,
        despite=case.despite,
        feedback=record.feedback,
        provenance=record.provenance,
        citation=method.citation,
        bibtex=method.bibtex,
    )


def _tags(case: _Case, card: ModelCard) -> dict[str, str]:
    said = {
        **case.verdict_tags,
        schema.TAG_VERDICT: marked(case.deciding.verdict, case.deciding.edition),
        models.TAG_EDITION: f"{edition_words(case.deciding.edition)}, sha256 {case.deciding.edition.digest}",
        models.TAG_RUN: card.run_id,
        schema.TAG_REPORT: card.audit_run_id,
        schema.TAG_SPEC: card.identity,
        models.TAG_METHOD: case.record.spec.method_label,
        schema.TAG_SETTING: card.setting,
        models.TAG_INTEGRITY: card.integrity.state,
        models.TAG_WEIGHTS: card.digests[model_folder.NETWORK],
        models.TAG_FEEDBACK: card.digests.get(model_folder.FEEDBACK, ""),
        models.TAG_CONTROL: "" if card.control == "none" else card.control,
        models.TAG_DESPITE: card.despite.reason if card.despite else "",
        models.TAG_AUTHOR: card.despite.author if card.despite else "",
        models.TAG_PROMOTION: case.key,
    }
    return {tag: value for tag, value in said.items() if value}
