"""Registered models: versions with tags, aliases and files.

The files have none of MLflow's flavours: a flavour would invite `mlflow.pyfunc.load_model`, which unpickles.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlflow.artifacts import download_artifacts
from mlflow.entities.model_registry import ModelVersion, RegisteredModel
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

from fa_registry import jsonio, process_ownership
from fa_registry.errors import IntegrityError, StoreError, UnknownName, UsageError
from fa_registry.tracking import schema
from fa_registry.tracking.artifact_location import local_folder, resolve_artifact
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.client import Client, answering
from fa_registry.tracking.reader import check_seal, read_provenance
from fa_registry.tracking.store import resolve_uri, sqlite_path
from fa_registry.tracking.store_errors import StoreRefusal
from fa_registry.training import model_folder
from fa_registry.training.model_folder import ModelCard

SCHEME = "models:/"
REFERENCE = re.compile(r"models:/(?P<name>[^/@:]+)(?:@(?P<alias>[\w-]+)|/(?P<version>\d+))")
FORM = "models:/NAME@alias or models:/NAME/3"
TAG_CARD = "fa.card"  # SHA-256 of card.json; the next two: of the weights and of the feedback
TAG_WEIGHTS = "fa.weights"
TAG_FEEDBACK = "fa.feedback"
TAG_RUN = "fa.run"
TAG_EDITION = "fa.edition"
TAG_METHOD = "fa.method"
TAG_CONTROL = "fa.control"
TAG_INTEGRITY = "fa.integrity"
TAG_DESPITE = "fa.despite"
TAG_AUTHOR = "fa.author"
TAG_PROMOTION = "fa.promotion"  # digest of what was promoted and by which verdict: equal promotions are one version
MAX_DESCRIPTION = 4000  # characters; the database's limit is 5000
CUT = "\n\n… cut here; the whole text is card.md among the files."
PAGE = 1000
FOLDER_DIGITS = 16  # hexadecimal, of a digest in a folder's name


FOLDER = "promoted"  # of the run's artifacts; each version's files are in a separate folder below it
FILES = {model_folder.NETWORK: schema.FINAL, model_folder.FEEDBACK: schema.FEEDBACK, model_folder.SPEC: schema.SPEC}


def promotion_key(card: ModelCard) -> str:
    """Return a digest of run, verdicts and reason: promoting the same again makes no second version."""
    weights = [card.digests.get(name, "") for name in FILES]
    edition = card.opinions[0].edition
    return jsonio.digest_of([card.run_id, weights, [edition.name, edition.digest], verdict_tags(card), card.despite])


def verdict_tags(card: ModelCard) -> dict[str, str]:
    """Return tag → verdict of every edition of the card."""
    return {schema.verdict_tag(opinion.edition): opinion.verdict.label for opinion in card.opinions}


def folder_name(key: str, card_digest: str) -> str:
    """Return the name of a version's folder, from its promotion key and the SHA-256 of its card.json.

    MLflow stores the folder's address as the version's source, which its API cannot change.
    """
    return jsonio.digest_of([key, card_digest])[:FOLDER_DIGITS]


def check_version(tracker: Tracker, version: RegisteredVersion, card: ModelCard) -> None:
    """Raise IntegrityError unless card and weights are those that were promoted.

    The version's tags are not trusted: the card must be the one that the version's source names, and the weights those that the
    run itself recorded.
    """
    key, folder = promotion_key(card), version.source.rstrip("/").rpartition("/")[2]
    # releases that wrote no digest of the card into it named the folder by the key alone
    if folder not in (folder_name(key, version.tags[TAG_CARD]), key[:FOLDER_DIGITS]):
        raise IntegrityError(
            f"{version.reference}: its source names the card {folder}, found another card whose tag {TAG_CARD} was replaced"
        )
    if card.run_id != version.run_id:
        raise IntegrityError(f"{version.reference}: it is of run {version.run_id}, its card of run {card.run_id}")
    run = tracker.get(version.run_id)
    path = tracker.artifact(run.run_id, schema.PROVENANCE)
    recorded = read_provenance(path)["digests"] if path else {}
    check_seal(tracker, run, recorded)
    other = [name for name, artifact in FILES.items() if card.digests.get(name) != recorded.get(artifact)]
    if other:
        raise IntegrityError(f"{version.reference}: {', '.join(other)}: not the files that run {run.run_id} recorded")


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of a registered model. source: folder of its files. aliases: those that point to it."""

    name: str
    version: str
    run_id: str
    source: str
    tags: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        return f"{SCHEME}{self.name}/{self.version}"


class ModelRegistry:
    """The registered models of the store `uri` (see store.resolve_uri), which must exist.

    Every method raises StoreError for an error of the store.
    """

    def __init__(self, uri: str = ""):
        self.uri = resolve_uri(uri)
        self._client = Client(self.uri, make=False)

    def versions(self, name: str) -> list[RegisteredVersion]:
        """Return all versions of `name`, newest first; empty if there is no such model. name: without a quote."""
        versions = self._matching(f"name = '{name}'")
        aliases = _by_version(self._client.get_registered_model(name)) if versions else {}
        newest_first = sorted(versions, key=lambda version: -int(version.version))
        return [_registered(version, aliases.get(str(version.version), ())) for version in newest_first]

    def versions_of(self, run_id: str) -> list[RegisteredVersion]:
        """Return all versions that were made of a run, without their aliases."""
        return [_registered(version, ()) for version in self._matching(f"run_id = '{run_id}'")]

    def _matching(self, query: str) -> list[ModelVersion]:
        versions: list[ModelVersion] = []
        token = None
        while True:
            page = self._client.search_model_versions(query, max_results=PAGE, page_token=token)
            versions += page
            token = page.token
            if not token:
                return versions

    def register(
        self, name: str, run_id: str, path: str, tags: Mapping[str, str], description: str
    ) -> RegisteredVersion:
        """Register a new version of `name`, created if missing, from the run's artifacts below `path`."""
        try:
            self._client.create_registered_model(name)
        except StoreRefusal as refusal:
            if refusal.code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
                raise
        source = f"{self._client.get_run(run_id).info.artifact_uri}/{path}"
        made = self._client.create_model_version(
            name, source, run_id, dict(tags), description=_bounded(description), await_creation_for=0
        )
        return _registered(made, ())

    def set_alias(self, version: RegisteredVersion, alias: str) -> None:
        """Move `alias` to this version."""
        self._client.set_registered_model_alias(version.name, alias, version.version)

    def find(self, reference: str) -> RegisteredVersion:
        """Return the version of `models:/NAME@alias` or `models:/NAME/3`; raise UnknownName without one."""
        match = REFERENCE.fullmatch(reference)
        if match is None:
            raise UsageError(f"model {reference!r}: expected {FORM}")
        name, alias, number = match["name"], match["alias"], match["version"]
        versions = self.versions(name) if "'" not in name else []
        if not versions:
            raise UnknownName(f"registered model of {self.uri}", name, self.names())
        if alias:
            pointing = {alias: version for version in versions for alias in version.aliases}
            if alias not in pointing:
                raise UnknownName(f"alias of {name}", alias, pointing)
            return pointing[alias]
        by_number = {version.version: version for version in versions}
        if number not in by_number:
            raise UnknownName(f"version of {name}", number, by_number)
        return by_number[number]

    def names(self) -> list[str]:
        """Return the names of the registered models, at most one page of them."""
        return [model.name for model in self._client.search_registered_models(max_results=PAGE)]

    def files(self, version: RegisteredVersion) -> Path:
        """Return the folder of a version's files: the local one, or a copy until the process ends."""
        with answering(self.uri):
            source = self._client.get_model_version_download_uri(version.name, version.version)
            local = local_folder(source, self.uri, version.run_id)
            if local is not None and os.path.isdir(local):
                return local
            if local is not None and sqlite_path(self.uri):  # the recorded address is not tried
                raise StoreError(f"{version.reference}: its files are not in {resolve_artifact(local, source)}")
            folder = process_ownership.create_temp_dir("fa_registry-model-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return Path(download_artifacts(artifact_uri=source, dst_path=folder, tracking_uri=self.uri))


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - len(CUT)] + CUT


def _by_version(model: RegisteredModel) -> dict[str, tuple[str, ...]]:
    aliases_of: dict[str, tuple[str, ...]] = {}
    for alias, version in sorted(model.aliases.items()):
        aliases_of[str(version)] = (*aliases_of.get(str(version), ()), alias)
    return aliases_of


def _registered(version: ModelVersion, aliases: tuple[str, ...]) -> RegisteredVersion:
    return RegisteredVersion(
        version.name, str(version.version), version.run_id or "", version.source, dict(version.tags), aliases
    )
