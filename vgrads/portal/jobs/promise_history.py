"""How sure the promise of a run was, as it went: reckoned afterwards, or so far, from its
journal."""

from __future__ import annotations

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import advance, event_from_json
from vgrads.execmgr.core.remainder import progress_of
from vgrads.execmgr.core.states import Replanned, RunState
from vgrads.execmgr.core.step import begin
from vgrads.planner.replan import promise_now
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

_POINTS = 24


def promise_over_time(url: str, run_id: str) -> list[dict[str, float]]:
    """At up to two dozen instants of a run: the probability that the promise is kept, and workflows
    done."""
    with Store(url) as store:
        books = RunRecord(store.engine, run_id).books()
        events = [event_from_json(body) for body in store.events(run_id)]
    if not books:
        return []
    every = max(1, len(events) // _POINTS)
    state = begin(books[0])
    found = [_point(books[0], state, books[0].plan.promise.probability)]
    for number, event in enumerate(events, start=1):
        state = advance(books, state, event)
        if number % every == 0 or number == len(events) or isinstance(event, Replanned):
            found.append(_point(books[state.version], state))
    return found


def _point(book: Book, state: RunState, probability: float | None = None) -> dict[str, float]:
    chance = probability
    if chance is None:
        chance = promise_now(book.plan, book.snapshot, progress_of(book, state)).probability
    done = sum(
        all((w.name, task) in state.done for task in w.tasks)
        for w in book.snapshot.wanted.workflows
    )
    return {"at_s": state.now_s, "probability": chance, "done": done}
