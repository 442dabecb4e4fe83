"""EASY against an independent implementation: another data structure, another way of thinking.

The reference keeps, for every instant, the list of free processors by brute force and looks for the
head's reservation by scanning ends; it knows nothing of the simulator's code.
"""

import heapq

from hypothesis import given
from hypothesis import strategies as st

from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster
from vgrads.traces.history import read_history


def reference(rows, procs):  # in one piece on purpose: to be read beside the paper
    """Start time of every job ``(submit, procs, request, run)``."""
    events = [(submit, 1, n) for n, (submit, *_) in enumerate(rows)]
    heapq.heapify(events)
    waiting, running, free, starts = [], {}, procs, {}
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, n = heapq.heappop(events)
            if kind:
                waiting.append(n)
            else:
                free += rows[n][1]
                del running[n]

        def start(n, now=now):
            nonlocal free
            free -= rows[n][1]
            starts[n] = now
            running[n] = now + max(rows[n][2], rows[n][3])
            heapq.heappush(events, (now + rows[n][3], 0, n))
            waiting.remove(n)

        while waiting and rows[waiting[0]][1] <= free:
            start(waiting[0])
        if not waiting:
            continue
        need = rows[waiting[0]][1]
        free_at = {
            end: free + sum(rows[m][1] for m, e in running.items() if e <= end)
            for end in running.values()
        }
        shadow = min(end for end, have in free_at.items() if have >= need)
        spare = free_at[shadow] - need
        for n in waiting[1:]:
            width, request = rows[n][1], rows[n][2]
            if width <= free and now + request <= shadow:
                start(n)
            elif width <= min(free, spare):
                spare -= width
                start(n)
    return [starts[n] for n in range(len(rows))]


def ours(rows, procs):
    cluster = BatchCluster(procs)
    for n, (submit, width, request, run) in enumerate(rows):
        cluster.submit(BatchJob(str(n), width, request, run), submit)
    starts = {int(h.job): h.time_s for h in cluster.advance(float("inf")) if h.kind == "started"}
    return [starts[n] for n in range(len(rows))]


jobs = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 8), st.integers(1, 40), st.integers(1, 40)).map(
        lambda r: (float(r[0]), r[1], float(max(r[2], r[3])), float(r[3]))
    ),
    min_size=1,
    max_size=40,
)


@given(jobs)
def test_every_start_is_that_of_the_reference(rows):
    rows = sorted(rows, key=lambda row: row[0])
    assert ours(rows, 8) == reference(rows, 8)


def test_real_load_starts_as_in_the_reference(shared):
    log = read_history(shared / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz")
    log = log.select(log.started & (log.run_s >= 0))
    rows = list(
        zip(
            log.submit_s.tolist(),
            log.procs.tolist(),
            log.request_s.clip(1).tolist(),
            log.run_s.tolist(),
            strict=True,
        )
    )[:8000]
    assert ours(rows, 100) == reference(rows, 100)
