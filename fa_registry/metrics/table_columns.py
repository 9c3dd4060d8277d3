"""The tables: which metrics each page, file, chart and command shows.

A table is a tuple of metric names. The function `table` replaces three placeholders: HEADLINE by the main metric of the task,
FROZEN by the main metric of the frozen control, and MARGIN by the margin between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fa_registry.metrics.base import HEADLINE_GAMMA
from fa_registry.metrics.headlines import DEFAULT, Headline

HEADLINE, FROZEN, MARGIN = "{headline}", "{frozen}", "{margin}"
TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # pages
        "audit": (
            *(HEADLINE, FROZEN, MARGIN, "h_L", "growth_max", "growth_init_max", "g_norm_mean_ce_L"),
            *("stability_mid", HEADLINE_GAMMA),
        ),
        "paper": (HEADLINE, MARGIN, "growth_max", "g_norm_mean_ce_L", HEADLINE_GAMMA),
        "form": (HEADLINE, FROZEN, MARGIN, HEADLINE_GAMMA),
        "note": (
            *(HEADLINE, "h_L", "g_norm_mean_ce_L", "growth_max", "growth_init_max", FROZEN, MARGIN),
            HEADLINE_GAMMA,
        ),
        "comparison": (HEADLINE, HEADLINE_GAMMA, "h_L", "growth_max", "g_norm_mean_ce_L", "stability_mid"),
        "comparison_sites": ("gamma", "h_norm", "g_norm_mean_ce"),  # in addition to the metrics that no table names
        "run_scalars": (
            *("perplexity", "bits_per_token", "excess_nats"),
            *("stability_mid", "gamma_block_input_mean", "gamma_deep_input"),
            *("gamma_deep_input_null_mean", "gamma_deep_input_null_std", "blocks_trained", "feature_drift_blocks"),
        ),
        # files: audit.csv, and the metrics that a report contains for every epoch, or for every site at some epochs
        "csv": (HEADLINE, FROZEN, MARGIN, "h_L", "g_norm_mean_ce_L", "growth_max", "stability_mid"),
        "trajectory": (
            *("h_L", "g_L", "growth_max", "growth_init_max", HEADLINE, "loss_train", HEADLINE_GAMMA, "fidelity_min"),
            *("g_norm_L", "g_norm_mean_ce_L", "gain_L", "fidelity_L", "fidelity_batch_L"),
        ),
        "trajectory_sites": ("growth", "g_norm_mean_ce", "gamma"),
        # terminal
        "audit_command": (HEADLINE, "growth_max", "growth_init_max"),
        "train_command": (HEADLINE, "growth_max", "h_L", "g_norm_mean_ce_L", HEADLINE_GAMMA, "costate_cosine_mean"),
        "watch_command": ("h_L", "g_norm_mean_ce_L", HEADLINE),
        # --json prints all metrics
        "diff_command": (HEADLINE, "h_L", "g_norm_mean_ce_L", "growth_max", "stability_mid", HEADLINE_GAMMA),
        "progress_bar": (HEADLINE, "loss_train"),  # only the first metric with a value is shown
        # MLflow's pages
        "mlflow_charts": (HEADLINE, "growth_max", "h_L", "g_norm_mean_ce_L", HEADLINE_GAMMA),
        "mlflow_columns": (HEADLINE, MARGIN, "growth_max", HEADLINE_GAMMA, "h_L", "g_norm_mean_ce_L"),
        "mlflow_sites": ("h_norm", "g_norm_mean_ce", "gamma"),
        # metrics that belong to no table of the form
        "headlines": (HEADLINE, "accuracy_train", "loss_train", "penalty", FROZEN, MARGIN),
    }
)
# The form's tables of metrics by site. Each metric is followed by its controls.
SITE_TABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Scale and reference",
        (
            *("h_norm", "growth", "growth_init", "g_norm_mean_ce", "gain"),
            *("fidelity", "fidelity_batch", "stability"),
        ),
    ),
    (
        "Credit and its null",
        (
            *("gamma", "gamma_flat", "gamma_null_mean", "gamma_null_p", "gamma_batch", "gamma_centred", "norm_ratio"),
            *("gamma_block_input", "bridge_residual", "costate_cosine"),
        ),
    ),
    (
        "Perturbation",
        (
            *("rho", "rho_bp", "rho_random", "rho_samples", "rho_bp_samples", "rho_random_samples", "rho_absolute"),
            *("rho_absolute_samples", "nudge", "nudge_rms", "nudge_bp"),
        ),
    ),
)
FURTHER = "Further metrics"  # title of the table of metrics that SITE_TABLES does not contain
DEVIATIONS: Mapping[str, str] = MappingProxyType({"gamma_null_mean": "gamma_null_std"})  # mean → its deviation
SHOWN_MEMBERS = 5  # number of metrics of a family that are shown, largest values first


def table(name: str, headlines: Iterable[Headline] = (DEFAULT,)) -> tuple[str, ...]:
    """Return the metric names of a table, a key of TABLES, for runs with these headlines.

    A table of runs with different tasks has one column per headline.
    """
    headlines = tuple(headlines)
    columns = {
        HEADLINE: [item.name for item in headlines],
        FROZEN: [item.frozen for item in headlines],
        MARGIN: [item.margin for item in headlines],
    }
    return tuple(dict.fromkeys(column for entry in TABLES[name] for column in columns.get(entry, (entry,))))
