"""Models on MLflow's pages: the final weights of each run, and the registered models.

A version refers to the files of a run. They have no MLflow flavour, which would unpickle them. Therefore the versions are created
with MLflow's client: `mlflow.register_model` accepts a run's files only if they contain an `MLmodel` file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mlflow.entities.model_registry import ModelVersion
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode
from mlflow.store.model_registry import SEARCH_MODEL_VERSION_MAX_RESULTS_THRESHOLD as ALL

from fa_registry.errors import UsageError
from fa_registry.metrics import Headline, table
from fa_registry.records import RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point, Tracker
from fa_registry.tracking.client import Client
from fa_registry.tracking.store import resolve_uri
from fa_registry.tracking.store_errors import StoreRefusal
from fa_registry.training.specs import setting_label

REFERENCE = re.compile(r"models:/([^/@:]+)(?:@([\w-]+)|/(\d+))")  # name, and its alias or its version


def recorded_tags(record: RunRecord) -> dict[str, str]:
    """Return the tags that `load_model` compares: specification and SHA-256 of the tensors."""
    weights, feedback = (record.digests.get(name, "") for name in (schema.FINAL, schema.FEEDBACK))
    return {schema.TAG_SPEC: record.spec.identity, schema.TAG_WEIGHTS: weights, schema.TAG_FEEDBACK: feedback}


def add_final_weights(
    tracker: Tracker, run_id: str, spec: RunSpec, headline: Headline, points: Iterable[Point]
) -> None:
    """List the final weights of a run among MLflow's models.

    The weights stay a file of the run (docs/decisions/17). If the store is unreachable, there is no entry.

    Args:
        headline: main metric of the run; the entry has the metrics of MLflow's table of runs.
        points: points that the run has of the epoch to which the weights belong, with their times.
    """
    keys = [schema.SCALAR_METRICS.get(name, name) for name in table("mlflow_columns", [headline])]
    by_key = {point.key: point for point in points}
    file = f"[{schema.FINAL}]({tracker.link(run_id, schema.FINAL)})"
    note = f"Weights: {file} of the source run, whose page has the verdict. To register: `fa-registry promote {run_id}`"
    tracker.without_retry().add_model_entry(
        run_id,
        f"{spec.method_label} s{spec.seed} · {setting_label(spec)}",
        [by_key[key] for key in keys if key in by_key],  # MLflow's columns have this order
        note,
    )


class ModelRegistry:
    """Registered models of an existing store.

    Every method raises StoreError if the store reports an error.
    """

    def __init__(self, uri: str = ""):
        self.uri = resolve_uri(uri)
        self.client = Client(self.uri, make=False)

    def versions_of(self, run_id: str) -> list[ModelVersion]:
        """Return all versions that were created from a run."""
        return list(self.client.search_model_versions(f"run_id = '{run_id}'", max_results=ALL))

    def find(self, reference: str) -> ModelVersion:
        """Return the version that `models:/NAME@alias` or `models:/NAME/3` refers to."""
        if not (match := REFERENCE.fullmatch(reference)):
            raise UsageError(f"model {reference!r}: expected models:/NAME@alias or models:/NAME/3")
        name, alias, version = match.groups()
        client = self.client
        return client.get_model_version_by_alias(name, alias) if alias else client.get_model_version(name, version)

    def register(self, name: str, run_id: str, tags: Mapping[str, str]) -> ModelVersion:
        """Register the files of a run as a new version of a model, which is created if it does not exist."""
        try:
            self.client.create_registered_model(name)
        except StoreRefusal as refusal:
            if refusal.code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
                raise
        source = self.client.get_run(run_id).info.artifact_uri
        return self.client.create_model_version(name, source, run_id, dict(tags), await_creation_for=0)

    def aliases(self, name: str) -> Mapping[str, str]:
        """Return the aliases of a model, each with the number of its version."""
        return self.client.get_registered_model(name).aliases

    def set_aliases(self, version: ModelVersion, aliases: tuple[str, ...]) -> None:
        """Make each alias refer to this version and to no other version of the model."""
        for alias in aliases:
            self.client.set_registered_model_alias(version.name, alias, version.version)
