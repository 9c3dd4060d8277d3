"""Loading of promoted models: from MLflow's registry, or from a folder without MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fa_registry import jsonio
from fa_registry.architectures.base import Network
from fa_registry.errors import IntegrityError, InvalidFields, UsageError
from fa_registry.methods.base import HasOwnPrediction, Method
from fa_registry.records import RunSpec
from fa_registry.schema_number import KEY, check_schema
from fa_registry.seeding import generator
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import load_into
from fa_registry.training.prediction import scores_of
from fa_registry.training.run_setup import blank_input, build_network, network_shape
from fa_registry.training.spec_plugins import find_plugins


@dataclass(frozen=True)
class LoadedModel:
    """A model with the network in eval mode on the CPU, and the tags of its version.

    The feedback is None if the run was adopted without its feedback state, because other draws would differ from it.
    """

    network: Network
    feedback: nn.Module | None
    method: Method
    spec: RunSpec
    tags: Mapping[str, str]

    def predict(self, images: Tensor) -> Tensor:
        """Return the outputs (N, C) that the run's accuracy evaluates.

        They are the logits, or the scores of a method that predicts by itself.

        Raises:
            UsageError: the method predicts with its feedback state, which was not saved.
        """
        if isinstance(self.method, HasOwnPrediction) and self.feedback is None:
            raise UsageError(
                f"method {self.method.card.name!r} predicts with its feedback state, which this model lacks"
            )
        with torch.no_grad():
            logits = self.network(images)
        scores = scores_of(self.method, self.feedback, self.network, images, logits.shape)
        return logits if scores is None else scores

    def __repr__(self) -> str:
        weights = sum(parameter.numel() for parameter in self.network.parameters())
        return f"LoadedModel({self.spec.label!r}, {weights:,} parameters)"


def load_model(model: str | Path, store: str = "") -> LoadedModel:
    """Load the network of a promoted run with its exact weights.

    The SHA-256 of every file is that which the run recorded. For a registered model it is also that which `promote` found.

    Args:
        model: `models:/NAME@alias`, `models:/NAME/3`, or a folder with the files of a version.
        store: tracking URI of MLflow. The default is MLFLOW_TRACKING_URI, or sqlite:///mlflow.db if this variable is not set.

    Raises:
        StoreError: the model, alias or version does not exist.
        IntegrityError: a file or a digest was changed.
        UsageError: the version was not created by `fa-registry promote`.
    """
    if str(model).startswith("models:/"):
        return _registered(str(model), store)
    folder = Path(model)
    if not folder.is_dir():
        raise UsageError(f"model {str(model)!r}: expected models:/NAME@alias, models:/NAME/3 or an existing folder")
    return _from_folder(folder)


def _registered(reference: str, store: str) -> LoadedModel:
    from fa_registry.tracking.mlflow_tracker import MlflowTracker  # these modules import MLflow
    from fa_registry.tracking.models import ModelRegistry, recorded_tags
    from fa_registry.tracking.reader import read_record

    registry = ModelRegistry(store)
    version, tracker = registry.find(reference), MlflowTracker(registry.uri, make=False)
    if schema.TAG_SPEC not in version.tags:
        raise UsageError(f"{reference} was not created by `fa-registry promote`; load_model reads only promoted models")
    record = read_record(tracker, tracker.get(version.run_id))  # compares the recorded digests with the tag of the run
    for tag, recorded in recorded_tags(record).items():
        if version.tags.get(tag, "") != recorded:
            raise IntegrityError(
                f"{reference}: its tag {tag} has another value than run {version.run_id} recorded; one of them was changed"
            )
    files = {name: tracker.artifact(version.run_id, name) or Path(name) for name in (schema.FINAL, schema.FEEDBACK)}
    return _loaded(record.spec, record.digests, files, version.tags)


def _from_folder(folder: Path) -> LoadedModel:
    try:
        manifest = jsonio.read_json(folder / schema.PROVENANCE)
        check_schema(str(folder), manifest.get(KEY), "load the model with the fa_registry that trained it")
        digests = jsonio.decode(Mapping[str, str], manifest.get("digests"), schema.PROVENANCE)
        spec = jsonio.decode(RunSpec, jsonio.read_json(folder / schema.SPEC), schema.SPEC)
    except (InvalidFields, AttributeError) as error:
        raise IntegrityError(f"{folder}: expected the files of a run: {error}") from error
    if (found := jsonio.file_digest(folder / schema.SPEC)) != digests.get(schema.SPEC):
        raise IntegrityError(f"{schema.SPEC}: expected SHA-256 {digests.get(schema.SPEC)}, found {found}")
    return _loaded(spec, digests, {name: folder / name for name in (schema.FINAL, schema.FEEDBACK)}, {})


def _loaded(
    spec: RunSpec, digests: Mapping[str, str], files: Mapping[str, Path], tags: Mapping[str, str]
) -> LoadedModel:
    """Build network and feedback, and load their tensors if the SHA-256 of each file is the recorded one."""
    method, dataset = find_plugins(spec).method, find_plugins(spec).card
    network = build_network(spec, dataset)
    shape = network_shape(network, blank_input(spec, dataset), dataset.classes)
    feedback = method.feedback(shape, spec.method_options, generator(spec.seed, "feedback"))
    load_into(network, files[schema.FINAL], digests.get(schema.FINAL, "none"))
    if feedback.state_dict():
        if schema.FEEDBACK not in digests:
            return LoadedModel(network.eval(), None, method, spec, tags)
        load_into(feedback, files[schema.FEEDBACK], digests[schema.FEEDBACK])
    return LoadedModel(network.eval(), feedback.eval(), method, spec, tags)
