"""A service with a set in every state in which its page may be opened, with bags and a pool.
Nothing changes by itself: no supervisor takes work, and active runs stay where their journals end.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

import pytest
import uvicorn
from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from tests.portal.forecasts.logs_that_grow import scored
from tests.portal.pages.bag_gallery import decide_pool, run_bags
from tests.portal.serving import LEAD, SMALL
from tests.ports import free_ports
from tests.waiting import until
from vgrads.api.config import embedded_data, home
from vgrads.portal.jobs.worker import check_document, plan_stored_set, run_set
from vgrads.portal.records.heartbeat import new_owner
from vgrads.portal.records.sets import NewSet, Sets
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import (
    AcquisitionRow,
    ArchiveRow,
    EventRow,
    LeaseRow,
    PlanRow,
    RunRow,
    SetRow,
    WorkRow,
)
from vgrads.portal.records.work import PLAN
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog

STORM = LEAD | {"name": "lead-storm", "at_least": 6, "budget_usd": 40, "probability": 0.9}
TIGHT = STORM | {"name": "lead-tight", "deadline": "88m", "at_least": 8, "budget_usd": 3}
BELOW = TIGHT | {"name": "lead-below", "probability": 0.97}
IMPOSSIBLE = STORM | {"name": "lead-impossible", "deadline": "30m"}
_SEEDS = 12
_OF_A_SET = (
    *((SetRow, "id"), (PlanRow, "set_id"), (RunRow, "id"), (EventRow, "run_id")),
    *((ArchiveRow, "run_id"), (LeaseRow, "run_id"), (AcquisitionRow, "run_id")),
)
"""What is copied of a set, by the field that names the set or its run."""


class Gallery:
    """Sets by the name of their state: ``ids``; ``bags`` by name; ``pool``: the name of one.
    ``store``: of the service; ``folder``: its home."""

    def __init__(self, store: Store) -> None:
        self.open(store)
        self.catalog = load_catalog(embedded_data() / "sites.toml")
        self.ids: dict[str, str] = {}
        self.bags: dict[str, str] = {}
        self.pool, self.folder = "", Path()

    def open(self, store: Store) -> None:
        """Use a store of the same database."""
        self.store, self.sets = store, Sets(store.engine)

    def fill(self) -> None:
        """Make a set of every state, bags that were run, and a pool."""
        self.ids["received"] = self.add(STORM | {"name": "lead-received"})
        self.ids["planning"] = self._in_planning()
        self.ids["planned"] = self.planned(STORM | {"name": "lead-ready"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VGRADS_EFFORT", "1")  # that remedies are found
            self.ids["below"] = self.planned(BELOW)
            self.ids["impossible"] = self.planned(IMPOSSIBLE)
        self.ids["not-planned"] = self.add(SMALL | {"name": "unplanned"})
        self.sets.fail(self.ids["not-planned"], "the history of a queue cannot be read")
        self._run_promises()
        self.folder = home()
        self.bags, self.pool = run_bags(self.folder), decide_pool(self.store.engine)
        scored(self.store, "kittyhawk", "default", 287, 300)
        scored(self.store, "mercury", "default", 205, 240)

    def add(self, document: dict[str, object]) -> str:
        """A set that nobody plans yet."""
        text = check_document(document, 50_000).text
        return str(self.sets.add("ann", NewSet(str(document["name"]), text), real=False)["id"])

    def planned(self, document: dict[str, object]) -> str:
        """A set with its plan."""
        set_id = self.add(document)
        plan_stored_set(self.store, self.catalog, set_id)
        return set_id

    def run(self, set_id: str, seed: int = 0) -> str:
        """A run of a set from its start to its end, as fast as possible."""
        how = {"engine": "vgrads", "speed": None, "seed": seed}
        run_id = str(self.sets.add_run(set_id, how)["run"])
        run_set(self.store, self.catalog, run_id)
        return run_id

    def cut(self, run_id: str, position: int) -> None:
        """Make an ended run one that goes on, of which the journal has so many events."""
        at_s = self.store.events(run_id)[position - 1]["at_s"]
        started = datetime.now(UTC) - timedelta(seconds=at_s)
        values = {"state": "running", "outcome": "{}", "gantt": "{}", "started": started}
        with Session(self.store.engine) as session:
            later = (col(EventRow.run_id) == run_id, col(EventRow.position) >= position)
            session.execute(delete(EventRow).where(*later))
            session.execute(update(RunRow).where(col(RunRow.id) == run_id).values(**values))
            session.commit()

    def _in_planning(self) -> str:
        set_id = self.add(STORM | {"name": "lead-planning"})
        progress = {"phase": "placing workflows", "done": 120, "total": 298}
        values = {"state": "taken", "owner": new_owner()}
        text = json.dumps(progress | {"began_s": time.time() - 12.0})
        with Session(self.store.engine) as session:
            mine = (col(WorkRow.set_id) == set_id, col(WorkRow.kind) == PLAN)
            session.execute(update(WorkRow).where(*mine).values(progress=text, **values))
            session.commit()
        return set_id

    def _run_promises(self) -> None:
        """Sets whose runs keep and break their promises, and those of the same runs in their
        midst, ended or not."""
        self.ids["met"] = self._ended(STORM | {"name": "lead-met"}, "kept")
        for state, share in (("running", 0.55), ("cancelled", 0.3), ("failed", 0.2)):
            self.ids[state], run_id = self._copy(self.ids["met"], f"lead-{state}")
            self.cut(run_id, round(share * self.store.count_events(run_id)))
        self._end("cancelled", "cancelled by ann")
        self._end("failed", "its process died 3 times: it was ended by SIGKILL")
        self.ids["missed"] = self._ended(TIGHT | {"name": "lead-missed"}, "broken")
        self.ids["at-risk"], run_id = self._copy(self.ids["missed"], "lead-at-risk")
        self.cut(run_id, self._find_risk(run_id))

    def _ended(self, document: dict[str, object], state: str) -> str:
        set_id = self.planned(document)
        for seed in range(_SEEDS):
            if self.store.get_run(self.run(set_id, seed)).state == state:
                return set_id
        raise AssertionError(f"no run was {state}")

    def _copy(self, set_id: str, name: str) -> tuple[str, str]:
        """Copy a set with its plan and its newest run; return the ids of the copies. To plan and
        run it again takes seconds."""
        run_id, number = self.store.list_runs(set_id)[0].id, token_hex(5)
        copied = {set_id: f"set-{number}", run_id: f"run-{number}"}
        with Session(self.store.engine) as session:
            for table, key in _OF_A_SET:
                for row in session.exec(select(table).where(col(getattr(table, key)).in_(copied))):
                    values = row.model_dump()
                    for field in {"id", "set_id", "run_id"} & values.keys():
                        values[field] = copied.get(values[field])
                    if table is SetRow:
                        document = json.loads(row.document) | {"name": name}
                        values |= {"name": name, "document": json.dumps(document)}
                    session.add(table(**values))
                session.flush()
            session.commit()
        return copied[set_id], copied[run_id]

    def _find_risk(self, run_id: str) -> int:
        """Return the position of an event after which the promise of a run was at risk."""
        for position, event in enumerate(self.store.events(run_id), start=1):
            if event["kind"] == "promise" and 0.2 < event["probability"] < 0.8:
                return position
        raise AssertionError("the run was never at risk")

    def _end(self, state: str, reason: str) -> None:
        run = self.store.list_runs(self.ids[state])[0]
        self.store.end_run(run.id, state, {"reason": reason}, {})

    def remove(self, set_id: str) -> None:
        """Delete a set that was never planned."""
        self.sets.forget(set_id)

    def many(self, count: int) -> None:
        """Add so many ended sets of one plan, with their runs."""
        with Session(self.store.engine) as session:
            like = session.get_one(SetRow, self.ids["met"]).model_dump()
            for number in range(count):
                created = datetime.now(UTC) - timedelta(minutes=number)
                set_id, run_id = f"set-{number:010x}", f"run-{number:010x}"
                row = like | {"id": set_id, "name": f"storm {number}", "created": created}
                session.add(SetRow(**row))
                session.flush()
                state = "broken" if number % 9 == 0 else "kept"
                session.add(RunRow(id=run_id, set_id=set_id, state=state, started=created))
            session.commit()


@contextmanager
def served(store: Store, gallery: Gallery) -> Iterator[str]:
    """The service over the gallery, without its background work; yields its address."""
    app = make_app(store, gallery.catalog)
    port = free_ports()
    config = uvicorn.Config(app, port=port, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        app.state.service.learned.close()
