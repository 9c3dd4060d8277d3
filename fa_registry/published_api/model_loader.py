"""Loading of a promoted model from the model registry of MLflow or from a folder.

A folder with the files of a model can be loaded without MLflow.
"""

from __future__ import annotations

from pathlib import Path

from fa_registry.errors import UsageError
from fa_registry.training.model_folder import LoadedModel, read_folder

REGISTERED = "models:/"


def load_model(model: str | Path, store: str = "") -> LoadedModel:
    """Load the network of a promoted run with its exact weights.

    The SHA-256 of every file is checked before the file is read. For a registered model, two further checks are made, because the
    tags of a model version are untrusted. The digest of the card must match the name of the version's source folder. The weights
    must be the weights that the run recorded.

    Args:
        model: `models:/NAME@alias`, `models:/NAME/3`, or a folder with the files of a model version.
        store: tracking URI of MLflow. The default is MLFLOW_TRACKING_URI, or sqlite:///mlflow.db if this variable is not set.

    Returns:
        The network in eval mode on the CPU, its feedback, its method, the specification of its run, and its card.

    Raises:
        UnknownName: the model, alias or version does not exist.
        IntegrityError: a file was changed.
        UsageError: the version was not created by `fa-registry promote`.
    """
    if not str(model).startswith(REGISTERED):
        folder = Path(model)
        if not folder.is_dir():
            raise UsageError(
                f"model {str(model)!r}: expected models:/NAME@alias, models:/NAME/3 or the path of an existing folder"
            )
        return read_folder(folder)
    from fa_registry.tracking.mlflow_tracker import MlflowTracker  # this module imports MLflow
    from fa_registry.tracking.models import TAG_CARD, ModelRegistry, check_version

    registry = ModelRegistry(store)
    version = registry.find(str(model))
    digest = version.tags.get(TAG_CARD)
    if not digest:
        raise UsageError(
            f"{version.reference} was not created by `fa-registry promote`, because it has no tag {TAG_CARD}; "
            "load_model reads only promoted models"
        )
    loaded = read_folder(registry.files(version), digest)
    check_version(MlflowTracker(registry.uri, make=False), version, loaded.card)
    return loaded
