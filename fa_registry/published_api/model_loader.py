"""Loading of a promoted model from the registry, or from a folder of its files without MLflow."""

from __future__ import annotations

from pathlib import Path

from fa_registry.errors import UsageError
from fa_registry.training.model_folder import LoadedModel, read_folder

REGISTERED = "models:/"


def load_model(model: str | Path, store: str = "") -> LoadedModel:
    """Return the network of a promoted run with its exact weights, its feedback, method, spec and card.

    The network is in eval mode on the CPU. The SHA-256 of every file is checked before the file is read. The card of a
    registered model must be the card that the version's source names, and its weights must be those that the run
    recorded. A tag alone is not trusted.

    Args:
        model: `models:/NAME@alias`, `models:/NAME/3`, or a folder with the files of a version.
        store: tracking URI [MLFLOW_TRACKING_URI, else sqlite:///mlflow.db].

    Raises:
        UnknownName: the model, alias or version does not exist.
        IntegrityError: a file was changed.
        UsageError: `fa-registry promote` did not make the version.
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
            "load_model reads only promoted models"
        )
    loaded = read_folder(registry.files(version), digest)
    check_version(MlflowTracker(registry.uri, make=False), version, loaded.card)
    return loaded
