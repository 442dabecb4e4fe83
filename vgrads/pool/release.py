"""When hosts are given back: the release policies of Falkon (SC 2007, doi:10.1145/1362622.1362680,
§3.1), and draining.

Falkon's own caveat: a batch job frees its nodes only when all of its hosts have left.
``coordinated`` gives an allocation back as a whole, which the paper names as future work. No policy
goes below the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgrads.pool.view import NOTHING, HostView, PoolDecision, PoolView


def central_all(view: PoolView) -> PoolDecision:
    """Nothing is queued: all that are idle."""
    if view.queued:
        return NOTHING
    return _leave(view, view.idle, "no work waits")


def central_one(view: PoolView, fewer_than: int) -> PoolDecision:
    """Fewer loads are queued than this: one host, the longest idle."""
    if view.queued >= fewer_than:
        return NOTHING
    return _leave(view, view.idle[:1], f"{view.queued} loads wait, fewer than {fewer_than}")


def distributed(view: PoolView, idle_s: float) -> PoolDecision:
    """Each host for itself: idle so long."""
    return _leave(view, _idle_for(view, view.idle, idle_s), f"idle for {idle_s:g} s")


def coordinated(view: PoolView, idle_s: float) -> PoolDecision:
    """An allocation as a whole, once all of its hosts have been idle so long; one that may not go
    as a whole stays."""
    allocations: dict[str, list[HostView]] = {}
    for host in view.hosts:
        allocations.setdefault(host.allocation, []).append(host)
    spare, gone = len(view.staying) - view.limits.least, []
    for hosts in allocations.values():
        waits = [host for host in hosts if not host.draining]
        if waits and len(waits) <= spare and len(_idle_for(view, waits, idle_s)) == len(waits):
            spare -= len(waits)
            gone += waits
    return _leave(view, gone, f"the whole allocation is idle for {idle_s:g} s")


def before_the_end(view: PoolView, margin_s: float = 0.0) -> PoolDecision:
    """Hosts whose allocation ends before a task that begins now would: nothing more begins there.

    The bounds do not count here: a host that is about to end is no host.
    """
    late = [
        host.id
        for host in view.staying
        if host.ends_s is not None and host.ends_s - view.now_s < view.task_s + margin_s
    ]
    if not late:
        return NOTHING
    reason = (
        f"{len(late)} hosts get no more work: their allocations end before a task of "
        f"{view.task_s:g} s could"
    )
    return PoolDecision(drain=tuple(late), reasons=(reason,))


def _idle_for(view: PoolView, hosts: Iterable[HostView], idle_s: float) -> list[HostView]:
    return [
        host
        for host in hosts
        if host.idle_since_s is not None and view.now_s - host.idle_since_s >= idle_s - 1e-9
    ]


def _leave(view: PoolView, hosts: Sequence[HostView], why: str) -> PoolDecision:
    """These hosts go, as far as the least number allows."""
    going = [host.id for host in hosts][: max(0, len(view.staying) - view.limits.least)]
    if not going:
        return NOTHING
    return PoolDecision(drain=tuple(going), reasons=(f"gave back {len(going)} hosts: {why}",))
