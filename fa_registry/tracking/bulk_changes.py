"""Statements about many runs of MLflow's sqlite database.

MLflow's `log_batch` changes one run, in five transactions with a dozen statements. `change_runs` leaves the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from mlflow.entities import LifecycleStage
from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.validation import _validate_metric, _validate_tag
from sqlalchemy import bindparam, delete, select, tuple_
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.orm import Session

from fa_registry.tracking.base import RunUpdate


def change_runs(store: SqlAlchemyStore, changes: Sequence[RunUpdate]) -> None:
    """Set and remove tags and add metric points of several runs of an sqlite database, or of none.

    Raises:
        MlflowException: a run does not exist or is deleted, or a name or value is not allowed.
    """
    run_ids = [change.run_id for change in changes]
    query = select(SqlRun.run_uuid).where(SqlRun.run_uuid.in_(run_ids), SqlRun.lifecycle_stage == LifecycleStage.ACTIVE)
    with store.ManagedSessionMaker(read_only=False) as session:
        active = set(session.scalars(query))
        for change in changes:
            if change.run_id not in active:
                store._check_run_is_active(store._get_run(session, change.run_id))  # raises MLflow's own error
        _set_tags(session, changes)
        _remove_tags(session, changes)
        _add_points(session, changes)


def values_everywhere(store: SqlAlchemyStore, table: str, name: str) -> dict[str, str]:
    """Return one tag or parameter of all runs, deleted ones included: run id → value."""
    column = {"tags": SqlTag, "params": SqlParam}[table]
    with store.ManagedSessionMaker() as session:
        return dict(session.execute(select(column.run_uuid, column.value).where(column.key == name)).all())


def _set_tags(session: Session, changes: Sequence[RunUpdate]) -> None:
    tags = [(change.run_id, _validate_tag(*tag)) for change in changes for tag in change.tags.items()]
    statement = insert(SqlTag)
    new = statement.excluded
    statement = statement.on_conflict_do_update(
        index_elements=[SqlTag.key, SqlTag.run_uuid], set_={"value": new.value}, where=SqlTag.value != new.value
    )
    if tags:
        session.execute(statement, [{"run_uuid": run_id, "key": tag.key, "value": tag.value} for run_id, tag in tags])


def _remove_tags(session: Session, changes: Sequence[RunUpdate]) -> None:
    names = [{"of": change.run_id, "named": name} for change in changes for name in change.outdated]
    tags = SqlTag.__table__
    if names:
        statement = delete(tags).where(tags.c.run_uuid == bindparam("of"), tags.c.key == bindparam("named"))
        session.connection().execute(statement, names)


def _add_points(session: Session, changes: Sequence[RunUpdate]) -> None:
    """Add points, and make each the latest value of its metric unless a later value exists."""
    now, rows = int(time.time() * 1000), []
    for run_id, point in ((change.run_id, point) for change in changes for point in change.points):
        when = point.time or now
        _validate_metric(point.key, point.value, when, point.step)
        row = {"run_uuid": run_id, "key": point.key, "value": point.value, "timestamp": when, "step": point.step}
        rows.append({**row, "is_nan": False})
    if not rows:
        return
    session.execute(insert(SqlMetric).on_conflict_do_nothing(), rows)
    statement, columns = insert(SqlLatestMetric), ("step", "timestamp", "value")
    new = statement.excluded
    is_later = tuple_(*(new[name] for name in columns)) > tuple_(*(getattr(SqlLatestMetric, name) for name in columns))
    values = {name: new[name] for name in (*columns, "is_nan")}
    index = [SqlLatestMetric.key, SqlLatestMetric.run_uuid]
    session.execute(statement.on_conflict_do_update(index_elements=index, set_=values, where=is_later), rows)
