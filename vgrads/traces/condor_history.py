"""HTCondor's history: ClassAds of ended jobs, as the pool keeps them, as text (``condor_history
-long``), or as JSON (``-json``, ``-jsonl``).

Attributes: https://htcondor.readthedocs.io/en/latest/classad-attributes/. A job waits from its
submission (``QDate``) to its first start (``JobStartDate``); a job that was held before, or put
back into the queue by a failure, states no instant from which it could start. Jobs of the
scheduler and local universes run on the submit machine and are no jobs of the pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vgrads.traces.build import NO_ELIGIBLE, UNKNOWN, WAITING, AccountingJob, JobBuilder
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import JobLog

_ATTRIBUTES = (
    *("QDate", "JobStartDate", "CompletionDate", "EnteredCurrentStatus", "JobStatus"),
    *("RequestCpus", "CpusProvisioned", "Owner", "JobUniverse", "NumHolds"),
    *("AllowedJobDuration", "AllowedExecuteDuration", "MaxWallTimeMins"),
)
_NAMES = {name.lower(): name for name in _ATTRIBUTES}
_NOTHING: dict[str, float | None] = dict.fromkeys(name for name in _ATTRIBUTES if name != "Owner")
_ON_SUBMIT_MACHINE = (7, 12)  # scheduler and local universe
_IDLE, _RUNNING, _ON_HOLD = 1, 2, 5
_QUEUE = "pool"
Ad = Mapping[str, Any]


def is_condor_ad(line: str) -> bool:
    """Return whether a line is an attribute or the banner of a ClassAd in text."""
    return line.startswith("*** ") or bool(re.match(r"[A-Za-z_]\w* = \S", line))


def read_condor_history(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read the history of a pool; ads that cannot be used are counted by reason."""
    builder = JobBuilder(name, "condor", "HTCondor jobs")
    for number, ad, size in _read_text_ads(lines):
        builder.report.pass_over("further line", size - 1)
        _add(ad, number, builder)
    return _log(builder, options)


def read_condor_json(ads: Iterable[tuple[int, Ad]], name: str, options: ReadingOptions) -> JobLog:
    """Read the ads of a document, each with its line."""
    builder = JobBuilder(name, "condor", "HTCondor jobs")
    for number, ad in ads:
        builder.report.lines += 1
        _add(ad, number, builder)
    return _log(builder, options)


def _log(builder: JobBuilder, options: ReadingOptions) -> JobLog:
    builder.report.note(NO_ELIGIBLE)
    return builder.log(options)


def _read_text_ads(lines: Iterable[str]) -> Iterator[tuple[int, Ad, int]]:
    """Return the wanted attributes of each ad, its first line, and its number of lines; ads end
    with a blank line or a banner."""
    ad: dict[str, Any] = {}
    first = size = 0
    for number, line in enumerate(lines, 1):
        title, mark, text = line.partition(" = ")
        name = _NAMES.get(title.lower()) if mark else None
        if name:
            ad[name] = _parse_value(text.strip())
        blank = line.isspace()
        if not blank:
            first, size = first or number, size + 1
        if blank or line.startswith("*** "):
            if not size:
                continue
            yield first, ad, size
            ad, first, size = {}, 0, 0
    if size:
        yield first, ad, size


def _parse_value(text: str) -> object:
    if text.startswith('"'):
        return text.strip('"')
    try:
        return float(text)
    except ValueError:
        return None  # an expression or undefined


def _add(ad: Ad, number: int, builder: JobBuilder) -> None:
    report = builder.report
    numbers = _NOTHING | {
        name: _parse_number(value) for name, value in ad.items() if name in _NOTHING
    }
    submit, status = numbers["QDate"], numbers["JobStatus"]
    if numbers["JobUniverse"] in _ON_SUBMIT_MACHINE:
        report.pass_over("submit machine job")
        return
    if not submit:
        report.skip("without QDate", number)
        return
    start = numbers["JobStartDate"]
    if not start and status in (_IDLE, _ON_HOLD, None):
        report.pass_over(WAITING)
        return
    if not start and numbers["NumHolds"]:
        report.pass_over("never eligible job")
        return
    # of a removed job CompletionDate is 0: it left when its status changed
    end = numbers["CompletionDate"] or numbers["EnteredCurrentStatus"]
    builder.add(
        AccountingJob(
            number,
            submit,
            start or None,
            None if status == _RUNNING else end or None,
            int(numbers["CpusProvisioned"] or numbers["RequestCpus"] or 0),
            _find_requested_s(numbers),
            str(ad.get("Owner") or UNKNOWN),
            _QUEUE,
        )
    )


def _find_requested_s(numbers: Mapping[str, float | None]) -> float:
    limit_s = numbers["AllowedJobDuration"] or numbers["AllowedExecuteDuration"]
    minutes = numbers["MaxWallTimeMins"]
    return limit_s or (minutes * 60.0 if minutes else -1.0)


def _parse_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None
