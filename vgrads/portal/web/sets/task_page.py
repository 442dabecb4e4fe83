"""The page of a task: its attempts, with times on the clock and the ends of their output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from vgrads.kernel.units import format_duration, format_seconds
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.run_routes import Name, set_logs
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId, gantt, run_start, summary
from vgrads.portal.web.sets.task_table import SPENT, retry_key

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSection:
    """An attempt as its page shows it. ``began_s``, ``ended_s``: Unix time on the clock of the run;
    ``spent``: where the time went; ``outputs``: the ends of its output, by name."""

    title: str
    label: str
    began_s: float
    ended_s: float | None
    took: str
    site: str
    slot: str
    slot_path: str
    reason: str
    spent: str
    outputs: Mapping[str, str]


def add_task_page(app: FastAPI, service: Service) -> None:
    """Add the page of a task."""

    @app.get(
        "/sets/{set_id}/tasks/{workflow}/{task}",
        response_class=HTMLResponse,
        include_in_schema=False,
    )
    def task_page(set_id: SetId, workflow: Name, task: Name, request: Request) -> HTMLResponse:
        head = service.visible(set_id, reader_of(request))
        run = service.newest_run(set_id)
        again = retry_key(service, run)
        chart = gantt(service, head, run) if run is not None and head.revision else {}
        planned = [
            placement["copy"]
            for placement in chart.get("placements", ())
            if (placement["workflow"], placement["task"]) == (workflow, task)
        ]
        try:
            rows = set_logs(service, set_id, workflow, task)
        except HTTPException:
            if not again or not planned:
                raise
            rows = []  # it was lost before it started
        return page_of(
            request,
            "",
            "logs.html",
            s=summary(service, head),
            task=f"{workflow}/{task}",
            chart_path=_make_chart_path(set_id, task=f"{workflow}/{task}") if planned else "",
            attempts=_make_sections(set_id, run, rows, planned),
            again=again if all(row["state"] != "done" for row in rows) else "",
        )


def _make_chart_path(set_id: str, **what: str) -> str:
    """Return the address of a set's chart at a task or a slot."""
    return f"/sets/{set_id}?{urlencode(what)}#gantt"


def _make_sections(
    set_id: str, run: RunRow | None, rows: Sequence[Json], planned: Iterable[int]
) -> list[AttemptSection]:
    if run is None:
        return []
    start_s = run_start(run).timestamp()
    replicas = 1 + max([0, *planned, *(row["copy"] for row in rows)])
    return [_make_section(set_id, start_s, row, replicas) for row in rows]


def _make_section(set_id: str, start_s: float, row: Json, replicas: int) -> AttemptSection:
    label = f"Attempt {row['attempt'] + 1}"
    if replicas > 1:
        label = f"Replica {row['copy'] + 1} of {replicas}, a{label[1:]}"
    exit_code = "" if row["exit"] is None else f", exit {row['exit']}"
    began_s, seconds = start_s + row["started_s"], row["seconds"]
    return AttemptSection(
        title=f"{label}: {row['state']}{exit_code}",
        label=label,
        began_s=began_s,
        ended_s=None if seconds is None else began_s + seconds,
        took="" if seconds is None else _format_duration(seconds),
        site=row["site"],
        slot=row["slot"],
        slot_path=_make_chart_path(set_id, slot=row["slot"]),
        reason=row["reason"] or "",
        spent=_describe_spent(row["times"] or {}),
        outputs={name: row[name] for name in ("stdout", "stderr") if row[name]},
    )


def _format_duration(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 60 else format_seconds(seconds, 2)


def _describe_spent(times: Mapping[str, float]) -> str:
    """Return what an attempt spent time and memory for, to two significant digits."""
    spent = ", ".join(
        f"{format_seconds(times[name], 2)} {words}" for name, words in SPENT if times.get(name)
    )
    parts = [spent] if spent else []
    if times.get("in_mib"):
        present = f"{times.get('cached_mib', 0.0):.2g} already present"
        parts.append(f"{times['in_mib']:.3g} MiB of inputs, {present}")
    if times.get("peak_mib"):
        parts.append(f"at most {times['peak_mib']:.0f} MiB of memory")
    return "; ".join(parts)
