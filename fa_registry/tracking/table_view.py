"""The run table of MLflow's pages with the columns worth sorting by, as a shared view of the experiment.

MLflow keeps such a view in a tag of the experiment and opens it by its name in the address. Nobody's own columns change,
and which runs are unfolded stays everybody's own.
The form of the tag is that of MLflow 3.17; tests/end_to_end/test_mlflow_ui.py looks whether the pages still read it.
"""

from __future__ import annotations

import json

from fa_registry.tracking.schema import MARGIN, TAG_VERDICT

NAME = "audit"
TAG = f"mlflow.sharedViewState.{NAME}"
RUN_NAME = "attributes.`Run Name`"  # always shown, and always first
COLUMNS = {  # and their width in pixels
    RUN_NAME: 420,
    f"tags.`{TAG_VERDICT}`": 130,
    "metrics.`accuracy/test`": 105,
    f"metrics.`{MARGIN}`": 95,
    "metrics.`growth_max`": 105,
    "metrics.`gamma_deep_mean`": 150,
    "metrics.`h_L`": 90,
    "metrics.`g_L`": 100,
    "attributes.`Dataset`": 200,
}
STATE = json.dumps(
    {
        "selectedColumns": [name for name in COLUMNS if name != RUN_NAME],
        "columnOrder": list(COLUMNS),
        "columnWidths": COLUMNS,
    }
)
