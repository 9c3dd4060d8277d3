"""Shared views for MLflow's pages: runs grouped by method, with charts.

MLflow stores a shared view in a tag of the experiment. The address of the page contains the key of the view. A shared view does not
change a user's own columns and charts. Without a view, MLflow's pages show no verdicts and one chart per metric, in alphabetical
order and with linear axes. The tag has the format of MLflow 3.17; tests/end_to_end/test_mlflow_ui.py checks that MLflow reads it.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from fa_registry import jsonio
from fa_registry.errors import RegistryError
from fa_registry.metrics import GEOMETRIC, HEADLINES, TABLES, Headline, Known, metric_named, symbol_of, table
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.schema import (
    PARAM_SEED,
    SCALAR_METRICS,
    SITE_KEYS,
    SITE_MARK,
    TAG_KIND,
    TAG_METHOD,
    TAG_PROOF,
    TAG_SETTING,
    TAG_STUDY,
    TAG_VERDICT,
    first_fire_tag,
    headline,
)

ODD = re.compile(r"[^\w ·.,:;=()<>/+%-]")  # includes quotes and backslashes
RELEASE = "3.17."  # release of MLflow; the format of other releases is not known
COMPRESSED = "deflate;"  # prefix with which MLflow's pages mark a long state: zlib, base64
MADE_BY = "fa_registry"  # a field that MLflow's pages ignore: digest of the state that fa_registry wrote
NOTE = (
    "Runs side by side, of the newest study or audit: {links}. fa_registry writes this line until somebody changes it."
)
LINK = r"\[[^\]]*\]\([^)\s]*\)"
COLUMN_WIDTH = 105
LONGEST_KEY = 180  # characters of a view's key before its digest; MLflow allows 250 for the name of the tag
LOADED = 100  # greatest number of runs that MLflow's pages load and draw
RUN_NAME = "attributes.`Run Name`"  # always shown, and always first
WIDTHS = {RUN_NAME: 325, f"tags.`{TAG_VERDICT}`": 165}  # pixels; other columns have COLUMN_WIDTH
# Pixels: on 1,280 × 800, two rows of three charts fit below MLflow's bars.
CHART_HEIGHT, CHARTS_A_ROW = 200, 3


@dataclass(frozen=True)
class View:
    """Shared view of an experiment.

    Attributes:
        key: name of the view in the page address.
        state: content of the view, in the format of MLflow's pages.
        charts: whether the view shows charts; a view without charts shows a table.
    """

    key: str
    state: Mapping[str, Any] = field(default_factory=dict)
    charts: bool = False

    @property
    def address(self) -> str:
        """Address of the view, relative to the page of its experiment."""
        address = f"/runs{MACHINE_LEARNING}&viewStateShareKey={quote(self.key)}"
        return address + ("&compareRunsMode=CHART" if self.charts else "")

    @property
    def text(self) -> str:
        """Value of the experiment tag: the compressed state and its digest."""
        signed = {**self.state, MADE_BY: jsonio.digest_of(self.state)}
        return COMPRESSED + base64.b64encode(zlib.compress(json.dumps(signed).encode(), 9)).decode()


MACHINE_LEARNING = "?workflowType=machine_learning"  # without it, MLflow opens its pages for language models


def compared_address(run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    """Return the address of MLflow's page that compares these runs."""
    runs, experiments = (quote(json.dumps(list(ids)), safe="") for ids in (run_ids, dict.fromkeys(experiment_ids)))
    # MLflow's page reads the runs only from the start of the query
    return f"#/compare-runs?runs={runs}&experiments={experiments}&{MACHINE_LEARNING[1:]}"


def term(field: str, value: str) -> str:
    """Return the condition `field` = `value` in MLflow's query language.

    The language cannot express quotes and backslashes in a text. For a value with such characters, the condition also matches
    values with other characters at the same positions.
    """
    return f"{field} LIKE '{pattern(value)}'" if ODD.search(value) else f"{field} = '{value}'"


def pattern(value: str) -> str:
    return ODD.sub("_", value)


def note_of(links: Mapping[str, str]) -> str:
    """Return the experiment's note above MLflow's list of runs, with links: title → address."""
    return NOTE.format(links=" · ".join(f"[{title}]({address})" for title, address in links.items()))


def is_our_note(text: str) -> bool:
    """Return whether fa_registry wrote this note and no user has changed it."""
    prefix, suffix = map(re.escape, NOTE.split("{links}"))
    return re.fullmatch(rf"{prefix}{LINK}( · {LINK})*{suffix}", text) is not None


def is_ours(text: str) -> bool:
    """Return whether fa_registry wrote this view tag and no user has changed it."""
    try:
        state_text = zlib.decompress(base64.b64decode(text.removeprefix(COMPRESSED))) if COMPRESSED in text else text
        state = json.loads(state_text)
        return state.pop(MADE_BY, "") == jsonio.digest_of(state)
    except (ValueError, zlib.error, AttributeError, TypeError, RegistryError):
        return False


def views_of(study: str, runs: Sequence[StoredRun], first_run_ids: Collection[str] = ()) -> tuple[View, ...]:
    """Return the views of a study's runs: charts, then a table.

    MLflow names a group by its method only if it groups by nothing else. So if there are several settings, charts and table of each
    setting come before the views of all runs. Without a study, only the first setting has its own views.

    Args:
        study: name of the study; empty means runs that belong to no study.
        runs: runs of the study. Charts show only metrics that at least one of these runs has.
        first_run_ids: ids of the runs that were just trained or audited. Their settings come before the other settings.
    """
    by_setting, all_runs = {}, _Contents()
    for run in sorted(runs, key=lambda run: (bool(first_run_ids) and run.run_id not in first_run_ids, run.started)):
        by_setting.setdefault(run.tags.get(TAG_SETTING, ""), _Contents()).add(run)
        all_runs.add(run)
    settings = [setting for setting in by_setting if setting]
    study_tags, views = {TAG_KIND: "run"} | ({TAG_STUDY: study} if study else {}), []
    title = study or "runs"
    for setting in settings[: None if study else 1] if len(settings) > 1 else ():
        views += _both(f"{title} {setting}", study_tags | {TAG_SETTING: setting}, by_setting[setting])
    return (*views, *_both(title, study_tags, all_runs, group_by_setting=bool(views)))


@dataclass
class _Contents:
    count: int = 0
    metrics: set[str] = field(default_factory=set)
    groups: set[tuple[str | None, str | None]] = field(default_factory=set)
    """by setting and method"""
    first_fires: set[str] = field(default_factory=set)
    headlines: dict[str, Headline] = field(default_factory=lambda: dict(HEADLINES))
    """the built-in main metrics, then those that the tasks of the runs declare"""

    @property
    def known(self) -> Known:
        return {metric.name: metric for item in self.headlines.values() for metric in item.metrics}

    def add(self, run: StoredRun) -> None:
        tags = run.tags
        self.count += 1
        self.metrics.update(run.metrics)
        logged = headline(tags, run.metrics)
        self.headlines.setdefault(logged.name, logged)
        self.groups.add((tags.get(TAG_SETTING), tags.get(TAG_METHOD)))
        self.first_fires.update(tag for tag in tags if tag.startswith(first_fire_tag("")))


def _both(
    title: str, required_tags: Mapping[str, str], runs: _Contents, group_by_setting: bool = False
) -> tuple[View, View]:
    key = re.sub(r"[^A-Za-z0-9_.]+", "-", title).strip("-")
    if len(key) > LONGEST_KEY:  # a setting with many changed fields; the digest keeps two of them apart
        key = f"{key[:LONGEST_KEY]}-{jsonio.digest_of(title)[:8]}"
    search_filter = {"searchFilter": " and ".join(term(f"tags.`{tag}`", value) for tag, value in required_tags.items())}
    return (
        View(key, search_filter | _charts(runs, group_by_setting), charts=True),
        View(f"{key}-table", search_filter | _table(runs)),
    )


def _charts(runs: _Contents, group_by_setting: bool) -> dict[str, Any]:
    logged, grouped_by = runs.metrics, [TAG_METHOD, TAG_SETTING] if group_by_setting else [TAG_METHOD]
    main = [
        _chart("headline", name, key, metric_named(name, runs.known).label)
        for name in table("mlflow_charts", runs.headlines.values())
        if (key := SCALAR_METRICS.get(name, name)) in logged
    ]
    by_site = []
    for name in TABLES["mlflow_sites"]:
        keys = sorted(key for key in logged if key.startswith(SITE_KEYS[name] + SITE_MARK))
        # one site per chart, with one line per method; all sites are on the pages of the runs and in the forms
        for key in dict.fromkeys((keys[0], keys[len(keys) // 2], keys[-1])) if keys else ():
            by_site.append(_chart("sites", name, key, f"{symbol_of(name)} at site {int(key.rpartition('_')[2])}"))
    tags_of_groups = [dict(zip((TAG_SETTING, TAG_METHOD), group, strict=True)) for group in runs.groups]
    groups = {",".join(f"tag.{tag}.{group_tags[tag]}" for tag in grouped_by) for group_tags in tags_of_groups}
    return {
        # Few runs are sorted by the study's order of methods. Many runs are sorted by seed, because MLflow groups only loaded runs.
        "orderByKey": "attributes.start_time" if runs.count <= LOADED else f"params.`{PARAM_SEED}`",
        "orderByAsc": True,
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": tag} for tag in grouped_by],
        },
        "groupsExpanded": dict.fromkeys(sorted(groups), False),
        "useGroupedValuesInCharts": True,
        "runsHiddenMode": "SHOW_ALL",  # by default MLflow draws ten runs
        "compareRunCharts": [*main, *by_site],
        "compareRunSections": [
            _section("headline", "Headline"),
            _section("sites", "By site: first, middle and last"),
        ],
        "isAccordionReordered": True,  # otherwise MLflow inserts further sections
        "viewMaximized": True,
        "hideEmptyCharts": True,
    }


def _chart(section: str, metric: str, key: str, title: str) -> dict[str, Any]:
    return {
        "uuid": f"{section}-{key}",
        "type": "LINE",
        "metricSectionId": section,
        "metricKey": key,
        "selectedMetricKeys": [key],
        "displayName": title,
        # a view of several runs shows `displayName` as the title only if this field is set
        "nodeLevelSystemMetricConfiguration": {"metric": key, "type": "node"},
        "scaleType": "log" if metric_named(metric).mean == GEOMETRIC else "linear",
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "range": {},
        "lineSmoothness": 0,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
        "ignoreOutliers": False,
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,  # MLflow discards charts that it regards as generated
    }


def _section(uuid: str, name: str) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "name": name,
        "display": True,
        "isReordered": True,
        "deleted": False,
        "isGenerated": False,
        "columns": CHARTS_A_ROW,
        "cardHeight": CHART_HEIGHT,
    }


def _table(runs: _Contents) -> dict[str, Any]:
    keys = [SCALAR_METRICS.get(name, name) for name in table("mlflow_columns", runs.headlines.values())]
    columns = [TAG_VERDICT, TAG_PROOF, *(key for key in keys if key in runs.metrics), *sorted(runs.first_fires)]
    column_names = [f"metrics.`{key}`" if key in runs.metrics else f"tags.`{key}`" for key in columns]
    return {
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "groupBy": None,
        "selectedColumns": column_names,
        "columnOrder": [RUN_NAME, *column_names],
        "columnWidths": dict.fromkeys(column_names, COLUMN_WIDTH) | WIDTHS,
    }
