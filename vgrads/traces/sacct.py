"""Slurm's ``sacct -P``: a table with a header, any columns in any order; also as CSV, or padded as
without ``-P``.

Required are the submission, start and end, and processors; steps (``123.batch``) are skipped, array
tasks (``123_4``) are jobs. Times without a zone are read as UTC; times with an offset and seconds
since 1970 (``SLURM_TIME_FORMAT=%s``) are accepted. A job that was cancelled while it waited has no
start, or, in old versions, one that equals its end: a right-censored wait.
"""

from __future__ import annotations

import io
import re

import numpy as np
import pandas as pd

from vgrads.kernel.errors import InputError
from vgrads.traces.build import broken_warning, is_padded, numbered, refuse_broken, requested_s
from vgrads.traces.records import JobLog

_NAMES = {
    "submit": ("submit", "submit_time"),
    "start": ("start", "start_time"),
    "end": ("end", "end_time"),
    "procs": ("alloccpus", "ncpus", "reqcpus", "processors_req", "nnodes", "nodes_req"),
    "limit": ("timelimit", "wallclock_req", "timelimitraw"),
    "queue": ("partition",),
    "user": ("user", "uid"),
    "state": ("state",),
    "id": ("jobid", "job_id", "jobidraw"),
}
_REQUIRED = ("submit", "start", "end", "procs")


def read_sacct(text: str, name: str) -> JobLog:
    """Parse a whole dump; malformed lines are skipped up to 1 %, then the file is rejected."""
    if is_padded(text):
        text = _unpadded(text)
    header, _, body = text.partition("\n")
    delimiter = "|" if "|" in header else ","
    columns = _columns(header.rstrip("\r").split(delimiter), name)
    body, broken = _whole_lines(body, header.count(delimiter), delimiter)
    frame = pd.read_csv(
        io.StringIO(body),
        sep=delimiter,
        header=None,
        dtype=str,
        keep_default_na=False,
        on_bad_lines="skip",
        usecols=sorted(columns.values()),
        quoting=3 if delimiter == "|" else 0,
    )
    table = pd.DataFrame({key: frame[position] for key, position in columns.items()})
    if "id" in table:
        table = table[~table["id"].str.contains(".", regex=False)]
    return _to_log(table, name, broken)


def _unpadded(text: str) -> str:
    """Convert to the form of ``-P``. Text that was too long for its column remains truncated, which
    times are not."""
    header, rule, *lines = text.splitlines()
    spans = [match.span() for match in re.finditer("-+", rule)]
    rows = (line for line in (header, *lines) if line.strip())
    return "\n".join("|".join(row[a:b].strip() for a, b in spans) for row in rows)


def _columns(header: list[str], name: str) -> dict[str, int]:
    """Return the column of each field; InputError names missing ones."""
    existing = {title.strip().strip('"').lower(): position for position, title in enumerate(header)}
    result = {}
    for key, titles in _NAMES.items():
        position = next((existing[title] for title in titles if title in existing), None)
        if position is not None:
            result[key] = position
    for key in _REQUIRED:
        if key not in result:
            raise InputError(
                f"no column {' or '.join(_NAMES[key])}",
                where=name,
                fix="request it from sacct with -o",
            )
    return result


def _whole_lines(body: str, delimiters: int, delimiter: str) -> tuple[str, list[int]]:
    """Return lines with as many fields as the header; CSV may quote delimiters and is left to its
    parser."""
    if delimiter == ",":
        return body, []
    lines = body.split("\n")
    good = [n for n, line in enumerate(lines) if line.count(delimiter) == delimiters]
    if len(good) == len(lines):
        return body, []
    broken = [
        n + 2
        for n, line in enumerate(lines)
        if line.strip() and line.count(delimiter) != delimiters
    ]
    return "\n".join(lines[n] for n in good), broken


def _to_log(table: pd.DataFrame, name: str, broken: list[int]) -> JobLog:
    submit, start, end = (_times(table[key]) for key in ("submit", "start", "end"))
    procs = pd.to_numeric(table["procs"], errors="coerce").to_numpy(dtype=np.float64)
    unusable = np.isnan(submit) | np.isnan(procs)
    refuse_broken(
        [*broken, *(np.flatnonzero(unusable) + 2).tolist()],
        int((~unusable).sum()),
        name,
        "sacct jobs",
    )
    state = table.get("state", pd.Series("", index=table.index)).str
    started = ~np.isnan(start) & ~(state.startswith("CANCELLED").to_numpy() & (start >= end))
    left = np.where(started, start, end)
    keep = ~unusable & ~np.isnan(left) & (left >= submit)
    if not keep.any():
        raise InputError("no job of the history has a known wait", where=name)
    rows = np.flatnonzero(keep)[np.argsort(submit[keep], kind="stable")]
    zero = float(submit[rows[0]])
    run = np.where(started & ~np.isnan(end), end - left, -1.0)
    user, users = numbered(_text(table, "user").iloc[rows])
    queue, queues = numbered(_text(table, "queue").iloc[rows])
    width = np.maximum(procs[rows], 1).astype(np.int64)
    return JobLog(
        name=name,
        submit_s=submit[rows] - zero,
        wait_s=left[rows] - submit[rows],
        run_s=run[rows],
        procs=width,
        request_s=_limits(_text(table, "limit").iloc[rows]),
        user=user,
        user_names=users,
        queue=queue,
        started=started[rows],
        unix_start_s=zero,
        max_procs=int(width.max()),
        queue_names=queues,
        warnings=broken_warning(broken),
    )


def _text(table: pd.DataFrame, key: str) -> pd.Series:
    return table[key] if key in table else pd.Series("unknown", index=table.index)


def _times(column: pd.Series) -> np.ndarray:
    """Parse seconds since 1970; NaN for Unknown, None and invalid text."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    if np.isfinite(numbers).mean() > 0.5:
        return numbers
    stamps = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
    seconds = stamps.dt.tz_localize(None).to_numpy(dtype="datetime64[ms]").astype(np.int64) / 1000.0
    return np.where(stamps.isna().to_numpy(), np.nan, seconds)


def _limits(column: pd.Series) -> np.ndarray:
    """Parse requested seconds; −1 for UNLIMITED, Partition_Limit and nothing. Few distinct values:
    each is parsed once."""
    existing = {value: requested_s(value) for value in column.unique()}
    return column.map(existing).to_numpy(dtype=np.float64)
