"""A predictor's state as plain values: saved, restored exactly, refused if its version is
unknown."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from dataclasses import asdict
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.qbets.arrays import Array
from vgrads.qbets.downtime import GAPS, Downtime
from vgrads.qbets.predictor import QueuePredictor, Settings, Waiting
from vgrads.qbets.stream import Known, WaitStream

VERSION = 1


def save(predictor: QueuePredictor) -> str:
    """Everything that the predictor knows, as JSON."""
    arrays: dict[int, int] = {}
    table: list[list[Any]] = []

    def number(array: Array) -> int:
        if id(array) not in arrays:
            arrays[id(array)] = len(table)
            table.append([array.first_s, array.kept, array.missed, array.minute])
        return arrays[id(array)]

    state = {
        "version": VERSION,
        "settings": asdict(predictor.settings),
        "now_s": None if math.isinf(predictor.now_s) else predictor.now_s,
        "edges": predictor.edges,
        "streams": [_stream_state(stream) for stream in predictor.streams],
        "change_points": predictor.change_points,
        "sequence": predictor.sequence,
        "next_binning": predictor.next_binning,
        "waiting": [
            [job, w.submit_s, w.bound_s, w.size, w.user, number(w.array), w.judged]
            for job, w in predictor.waiting.items()
        ],
        "newest": [
            [list(shape), number(array)] for shape, array in predictor.arrays.newest.items()
        ],
        "arrays": table,
        "downtime": _downtime_state(predictor),
        "judged": list(predictor.referee.last),
    }
    return json.dumps(state)


def _stream_state(stream: WaitStream) -> dict[str, Any]:
    return {
        "known": [list(k) for k in stream.known],
        "recent": list(stream.recent),
        "old_left": stream.old_left,
        "run": stream.run,
        "run_waits": stream.run_waits,
    }


def _downtime_state(predictor: QueuePredictor) -> dict[str, Any]:
    watch = predictor.downtime
    return {
        "gaps": list(watch.gaps),
        "last_start_s": watch.last_start_s,
        "submissions": watch.submissions,
        "past": [asdict(stall) for stall in watch.past],
    }


def restore(text: str) -> QueuePredictor:
    """The predictor behind :func:`save`; it goes on exactly where the saved one stopped."""
    try:
        state = json.loads(text)
        version = state["version"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError("is no saved predictor", where="predictor state") from error
    if version != VERSION:
        raise InputError(
            f"has version {version}, this program reads {VERSION}", where="predictor state"
        )
    predictor = QueuePredictor(Settings(**state["settings"]))
    predictor.now_s = -math.inf if state["now_s"] is None else state["now_s"]
    predictor.edges = state["edges"]
    predictor.streams = [_restore_stream(s, predictor.settings) for s in state["streams"]]
    predictor.change_points = state["change_points"]
    predictor.sequence, predictor.next_binning = state["sequence"], state["next_binning"]
    _restore_waiting(predictor, state)
    _restore_downtime(predictor, state["downtime"])
    for missed in state["judged"]:
        predictor.referee.judge(missed)
    return predictor


def _restore_stream(state: dict[str, Any], settings: Settings) -> WaitStream:
    stream = WaitStream(settings.quantile, settings.confidence, (Known(*k) for k in state["known"]))
    stream.recent = deque(state["recent"], maxlen=stream.recent.maxlen)
    stream.old_left, stream.run, stream.run_waits = (
        state["old_left"],
        state["run"],
        state["run_waits"],
    )
    return stream


def _restore_waiting(predictor: QueuePredictor, state: dict[str, Any]) -> None:
    arrays = [Array(*row) for row in state["arrays"]]
    predictor.arrays.newest = {(s[0], s[1], s[2]): arrays[number] for s, number in state["newest"]}
    for job, submit_s, bound_s, size, user, number, judged in state["waiting"]:
        predictor.expect(job, Waiting(submit_s, bound_s, size, user, arrays[number], judged))
    predictor.ahead = Counter(w.user for w in predictor.waiting.values() if w.user >= 0)


def _restore_downtime(predictor: QueuePredictor, state: dict[str, Any]) -> None:
    watch = predictor.downtime
    watch.gaps = deque(state["gaps"], maxlen=GAPS)
    watch.last_start_s, watch.submissions = state["last_start_s"], state["submissions"]
    watch.past = [Downtime(**stall) for stall in state["past"]]
