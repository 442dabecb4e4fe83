"""What holds of a database that is migrated, or that an earlier version wrote, whatever its kind;
used for SQLite and PostgreSQL."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlmodel import SQLModel

from vgrads.execmgr.core.states import Tick
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.portal.records.database import open_engine, sqlite_file
from vgrads.portal.records.migrate import HEAD, STEPS, current, move, prepare
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

NEXT = "0306"
EARLIER = {
    None: "0.1",
    "0001": "0.1",
    "0002": "0.1",
    "0003": "0.2",
    "0008": "0.2",
    "0009": "0.3.0.dev0",
    "0016": "0.3.0.dev0",
}
"""Revision of the tables → the version that wrote them."""
_STEP = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade():
    op.add_column("run", sa.Column("note", sa.String(), nullable=False, server_default="none"))


def downgrade():
    with op.batch_alter_table("run") as table:
        table.drop_column("note")
'''


def next_steps(folder: Path) -> Path:
    """Return a folder of the steps, and one that a next version might have."""
    steps = folder / "steps"
    if not steps.exists():
        shutil.copytree(STEPS, steps)
        (steps / "versions" / f"{NEXT}_next.py").write_text(_STEP)
    return steps


def fill(store: Store) -> str:
    """Store a set and a run with a journal; return the run's id."""
    run_id = store.add_run(store.add_set("s", {}, {}, {}))
    record = RunRecord(store.engine, run_id)
    record.lease.take()
    record.append([Tick(at_s=1.0)])
    record.lease.leave()
    store.set_run_state(run_id, "kept")
    return run_id


def check_next_revision(url: str, folder: Path) -> None:
    """A next version upgrades a database with all that it holds, an SQLite file after a copy that
    this version opens; downgraded, this version opens it again."""
    steps, file = next_steps(folder), sqlite_file(url)
    with Store(url) as store:
        run_id = fill(store)
    engine = open_engine(url)
    prepare(engine, NEXT, steps)
    assert current(engine) == NEXT
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id, note FROM run")).all()
    assert rows == [(run_id, "none")]
    with pytest.raises(InputError, match=f"newer vgrads.*{NEXT}"):
        Store(url)
    if file is not None:
        (copy,) = file.parent.glob(f"{file.name}.before-{NEXT}-*")
        with Store(f"sqlite:///{copy}") as store:
            assert RunRecord(store.engine, run_id).events() == [Tick(at_s=1.0)]
    move(engine, HEAD, steps=steps)
    engine.dispose()
    with Store(url) as store:
        assert "note" not in {column["name"] for column in inspect(store.engine).get_columns("run")}
        assert RunRecord(store.engine, run_id).events() == [Tick(at_s=1.0)]
        assert store.get_run(run_id).state == "kept"
        with pytest.raises(InputError, match="all data of the database"):
            move(store.engine, "base")
        move(store.engine, "base", lose_data=True)
        assert set(inspect(store.engine).get_table_names()) <= {"alembic_version"}


def check_many_at_once(url: str, folder: Path) -> None:
    """Several processes open a database of an older revision at the same time: it is migrated
    once."""
    steps, file = next_steps(folder), sqlite_file(url)
    with Store(url) as store:
        fill(store)
    problems: list[BaseException] = []

    def open_it() -> None:
        engine = open_engine(url)
        try:
            prepare(engine, NEXT, steps)
        except (VgradsError, RuntimeError) as error:
            problems.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    engine = open_engine(url)
    assert current(engine) == NEXT
    engine.dispose()
    if file is not None:
        assert len(list(file.parent.glob(f"{file.name}.before-*"))) == 1


def check_shape(url: str) -> None:
    """The steps lead to the tables that the code uses, with their keys and indexes."""
    engine = open_engine(url)
    move(engine, HEAD)
    with engine.connect() as connection:
        result = compare_metadata(
            MigrationContext.configure(connection, opts={"compare_server_default": True}),
            SQLModel.metadata,
        )
    migrated = _shape(engine)
    move(engine, "base", lose_data=True)
    engine.dispose()
    with Store(url) as store:
        assert migrated == _shape(store.engine)
    assert not result, result


def _shape(engine):
    """Columns, keys, references and indexes of all tables."""
    inspected = inspect(engine)
    return {
        table: (
            {column["name"]: str(column["type"]) for column in inspected.get_columns(table)},
            inspected.get_pk_constraint(table)["constrained_columns"],
            sorted(
                (*key["constrained_columns"], key["referred_table"], str(key["options"]))
                for key in inspected.get_foreign_keys(table)
            ),
            sorted(
                (i["name"], *i["column_names"], i["unique"]) for i in inspected.get_indexes(table)
            ),
            sorted(key["column_names"] for key in inspected.get_unique_constraints(table)),
        )
        for table in inspected.get_table_names()
    }


def write_earlier(url: str, revision: str | None) -> None:
    """Turn a new database into one that an earlier version wrote, as far as that can be told."""
    with Store(url) as store:
        fill(store)
        with store.engine.begin() as connection:
            connection.execute(text("DROP TABLE alembic_version"))
            if revision is not None:
                connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
                connection.execute(text(f"INSERT INTO alembic_version VALUES ('{revision}')"))


def check_earlier_is_refused(url: str, revision: str | None) -> None:
    """A database of an earlier version is neither opened nor migrated; the message names the
    version."""
    write_earlier(url, revision)
    words = rf"was written by vgrads {EARLIER[revision]}, which .* \(set VGRADS_DB to a new"
    with pytest.raises(InputError, match=words):
        Store(url)
    if sqlite_file(url) is None:  # a file is refused before it is opened
        engine = open_engine(url)
        with pytest.raises(InputError, match=words):
            move(engine, HEAD)
        engine.dispose()
    else:
        with pytest.raises(InputError, match=words):
            open_engine(url)
