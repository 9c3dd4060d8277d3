"""Registered models of MLflow: versions with tags, aliases and files.

The files have no MLflow flavour. If they had one, `mlflow.pyfunc.load_model` would unpickle them.
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
from mlflow.entities.model_registry import ModelVersion
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
TAG_CARD = "fa.card"  # SHA-256 of card.json; the next two tags: SHA-256 of the weights and of the feedback
TAG_WEIGHTS = "fa.weights"
TAG_FEEDBACK = "fa.feedback"
TAG_RUN = "fa.run"
TAG_EDITION = "fa.edition"
TAG_METHOD = "fa.method"
TAG_CONTROL = "fa.control"
TAG_INTEGRITY = "fa.integrity"
TAG_DESPITE = "fa.despite"
TAG_AUTHOR = "fa.author"
TAG_PROMOTION = "fa.promotion"  # digest of the promoted run and its verdicts; equal promotions create one version
MAX_DESCRIPTION = 4000  # characters; the database's limit is 5000
CUT = "\n\n… The rest of this text was cut; the file card.md contains the complete text."
PAGE = 1000
FOLDER_DIGITS = 16  # hexadecimal digits of a digest in a folder's name


FOLDER = "promoted"  # folder of the run's artifacts; each version's files are in a separate folder below it
FILES = {model_folder.NETWORK: schema.FINAL, model_folder.FEEDBACK: schema.FEEDBACK, model_folder.SPEC: schema.SPEC}


def promotion_key(card: ModelCard) -> str:
    """Return the key of a promotion, which registers a run as a model version.

    The key is a digest of run, weights, edition, verdicts and reason. If a version with this key exists, the promotion creates no
    second version.
    """
    weights = [card.digests.get(name, "") for name in FILES]
    edition = card.opinions[0].edition
    return jsonio.digest_of([card.run_id, weights, [edition.name, edition.digest], verdict_tags(card), card.despite])


def verdict_tags(card: ModelCard) -> dict[str, str]:
    """Return the tags with the verdicts on a model, one tag per edition that judged the model."""
    return {schema.verdict_tag(opinion.edition): opinion.verdict.label for opinion in card.opinions}


def folder_name(key: str, card_digest: str) -> str:
    """Return the folder name of a model version, a digest of the promotion key and the card's SHA-256.

    MLflow records the address of the folder as the source of the version. MLflow's API cannot change the source later, so
    `check_version` can compare the model's card with the folder name.
    """
    return jsonio.digest_of([key, card_digest])[:FOLDER_DIGITS]


def check_version(tracker: Tracker, version: RegisteredVersion, card: ModelCard) -> None:
    """Raise IntegrityError if the card or the weights of a version differ from the promoted files.

    The tags of the version are untrusted. The card is compared with the folder name in the version's source. The digests of the
    weights are compared with the digests that the run recorded.
    """
    key, folder = promotion_key(card), version.source.rstrip("/").rpartition("/")[2]
    # older releases named the folder by the key alone, without the digest of the card
    if folder not in (folder_name(key, version.tags[TAG_CARD]), key[:FOLDER_DIGITS]):
        raise IntegrityError(
            f"{version.reference}: its source contains the digest {folder}, but the tag {TAG_CARD} refers to another card"
        )
    if card.run_id != version.run_id:
        raise IntegrityError(
            f"{version.reference}: the version belongs to run {version.run_id}, but its card describes run {card.run_id}"
        )
    run = tracker.get(version.run_id)
    path = tracker.artifact(run.run_id, schema.PROVENANCE)
    recorded = read_provenance(path)["digests"] if path else {}
    check_seal(tracker, run, recorded)
    differing = [name for name, artifact in FILES.items() if card.digests.get(name) != recorded.get(artifact)]
    if differing:
        raise IntegrityError(
            f"{version.reference}: expected {', '.join(differing)} as recorded by run {run.run_id}, found other contents"
        )


@dataclass(frozen=True)
class RegisteredVersion:
    """Version of a registered model.

    Attributes:
        version: number of the version.
        source: address of the folder with the files.
        aliases: aliases that refer to this version.
    """

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
    """Registered models of an existing store. The default of `uri` is that of store.resolve_uri.

    Every method raises StoreError if the store reports an error.
    """

    def __init__(self, uri: str = ""):
        self.uri = resolve_uri(uri)
        self._client = Client(self.uri, make=False)

    def versions(self, name: str) -> list[RegisteredVersion]:
        """Return all versions of a model, newest first.

        The list is empty if the model does not exist. `name` must not contain single quotes.
        """
        versions = self._matching(f"name = '{name}'")
        aliases: dict[str, tuple[str, ...]] = {}
        for alias, version in sorted(self._client.get_registered_model(name).aliases.items()) if versions else ():
            aliases[str(version)] = (*aliases.get(str(version), ()), alias)
        newest_first = sorted(versions, key=lambda version: -int(version.version))
        return [_registered(version, aliases.get(str(version.version), ())) for version in newest_first]

    def versions_of(self, run_id: str) -> list[RegisteredVersion]:
        """Return all model versions that were created from a run, without their aliases."""
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
        """Register a folder of a run's artifacts as a new version of a model.

        Create the model if it does not exist. `path` is relative to the run's artifacts. The description is Markdown and is cut
        to 4000 characters.
        """
        try:
            self._client.create_registered_model(name)
        except StoreRefusal as refusal:
            if refusal.code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
                raise
        source = f"{self._client.get_run(run_id).info.artifact_uri}/{path}"
        version = self._client.create_model_version(
            name, source, run_id, dict(tags), description=_bounded(description), await_creation_for=0
        )
        return _registered(version, ())

    def set_alias(self, version: RegisteredVersion, alias: str) -> None:
        """Make `alias` refer to this version and to no other version of the model."""
        self._client.set_registered_model_alias(version.name, alias, version.version)

    def find(self, reference: str) -> RegisteredVersion:
        """Return the version that `models:/NAME@alias` or `models:/NAME/3` refers to.

        Raises:
            UsageError: the reference has neither of these two formats.
            UnknownName: the model, the alias or the version does not exist.
        """
        match = REFERENCE.fullmatch(reference)
        if match is None:
            raise UsageError(f"model {reference!r}: expected {FORM}")
        name, alias, number = match["name"], match["alias"], match["version"]
        versions = self.versions(name) if "'" not in name else []
        if not versions:
            raise UnknownName(f"registered model of {self.uri}", name, self.names())
        if alias:
            by_alias = {alias: version for version in versions for alias in version.aliases}
            if alias not in by_alias:
                raise UnknownName(f"alias of {name}", alias, by_alias)
            return by_alias[alias]
        by_number = {version.version: version for version in versions}
        if number not in by_number:
            raise UnknownName(f"version of {name}", number, by_number)
        return by_number[number]

    def names(self) -> list[str]:
        """Return the names of the registered models, at most 1000."""
        return [model.name for model in self._client.search_registered_models(max_results=PAGE)]

    def files(self, version: RegisteredVersion) -> Path:
        """Return a local folder with the files of a version.

        If the files are on another machine, the folder is a copy that is removed when the process ends.
        """
        with answering(self.uri):
            source = self._client.get_model_version_download_uri(version.name, version.version)
            local = local_folder(source, self.uri, version.run_id)
            if local is not None and os.path.isdir(local):
                return local
            if local is not None and sqlite_path(self.uri):  # the recorded address is not used
                raise StoreError(f"{version.reference}: its files are missing in {resolve_artifact(local, source)}")
            folder = process_ownership.create_temp_dir("fa_registry-model-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return Path(download_artifacts(artifact_uri=source, dst_path=folder, tracking_uri=self.uri))


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - len(CUT)] + CUT


def _registered(version: ModelVersion, aliases: tuple[str, ...]) -> RegisteredVersion:
    return RegisteredVersion(
        version.name, str(version.version), version.run_id or "", version.source, dict(version.tags), aliases
    )
