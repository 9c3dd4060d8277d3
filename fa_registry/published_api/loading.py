"""load_model: a promoted model back from the registry, or from a folder of its files, which needs no MLflow."""

from __future__ import annotations

from pathlib import Path

from fa_registry.errors import UsageError
from fa_registry.training.model_folder import LoadedModel, read_folder

REGISTERED = "models:/"


def load_model(model: str | Path, store: str = "") -> LoadedModel:
    """The network of a promoted run with its exact weights, in eval mode on the CPU, its feedback, method, spec and card.

    model: `models:/NAME@alias`, `models:/NAME/3`, or a folder that holds a version's files. store: tracking URI
    [MLFLOW_TRACKING_URI, else sqlite:///mlflow.db]. The SHA-256 of every file is checked before it is read. In the registry the
    card has to be the one that the version's source names, and the weights those that the run recorded: a tag alone is not
    believed. Raises UnknownName for a model, alias or version that is not there, IntegrityError for a file that was changed,
    UsageError for a version that `fa-registry promote` did not make.
    """
    if not str(model).startswith(REGISTERED):
        folder = Path(model)
        if not folder.is_dir():
            raise UsageError(f"model {str(model)!r}: expected models:/NAME@alias, models:/NAME/3 or an existing folder")
        return read_folder(folder)
    from fa_registry.tracking.mlflow_tracker import MlflowTracker  # imports MLflow
    from fa_registry.tracking.models import TAG_CARD, ModelRegistry, check_version

    registry = ModelRegistry(store)
    version = registry.find(str(model))
    digest = version.tags.get(TAG_CARD)
    if not digest:
        raise UsageError(
            f"{version.reference} was not made by `fa-registry promote` (it has no tag {TAG_CARD}): "
            "what is no promoted model is not read here"
        )
    loaded = read_folder(registry.files(version), digest)
    check_version(MlflowTracker(registry.uri, make=False), version, loaded.card)
    return loaded
