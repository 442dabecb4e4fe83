"""A program of somebody else: it imports ``vgrads`` and nothing below. ``make lint`` checks its
types strictly."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import vgrads


def describe(log: Path) -> list[str]:
    """Every function once, with each kind of argument."""
    now = datetime.now(UTC)
    bound: vgrads.BoundResult = vgrads.bound(log, 16, timedelta(hours=2), at=now, queue="batch")
    bound_s: float | None = bound.bound_s
    latest: float | None = bound.trajectory("6h", 0.9).submit_in_s
    chance = float(vgrads.probability(str(log), within=1800, method="qbets"))
    rows = [row.coverage for row in vgrads.backtest([log], by="queue", levels=(0.5,))]
    return [f"{bound_s} {latest} {chance:.3f} {rows}", bound.to_json()["method"]]


def promise(path: Path) -> str:
    """From a set to a kept promise."""
    loaded = vgrads.read_set(path, deadline="3h")
    plan = vgrads.plan(loaded, sites={"site": []}, seed=1, probability=0.95)
    if not plan.feasible:
        return "; ".join([plan.lacking, *(change.change for change in plan.relaxations)])
    sites = {slot.site for slot in plan.slots}
    busy_s = sum(task.end_s - task.start_s for task in plan.placements)
    run = vgrads.run(plan, folder="out", on_event=lambda event: print(event["kind"]))
    attempts = [attempt.exit_code or 0 for attempt in run.attempts]
    promised: float = plan.promise.probability
    return f"{run.verdict} {run.kept} {promised} {sites} {busy_s} {attempts} {plan.gantt('p.svg')}"


def nodes() -> dict[str, int]:
    """Offers, and the reason where there are too few."""
    offer = vgrads.offers({"name": "n", "duration": "1h"}, at="2009-01-01T00:00:00Z")
    return {group.name: group.nodes for group in offer.groups if offer.enough}


def many() -> int:
    """A bag, and its failures."""
    bag = vgrads.Bag(command="echo {x}", parameters={"x": range(3), "y": ["a", 1.5]}, retries=0)
    result: vgrads.BagResult = bag.run(folder=Path("bag"))
    return len(bag) + len(result.failures) + sum(path.stat().st_size for path in result.outputs)


def remote(url: str) -> str:
    """A service; what is wrong has a type."""
    try:
        with vgrads.Client(url, token="secret") as client:
            return client.wait(client.run(client.submit({"name": "s"})))
    except vgrads.SiteError as error:
        return f"{error.site} {error.transient}"
    except (vgrads.InputError, vgrads.InfeasibleError) as error:
        return f"{error.where}: {error.what}"


def refuse() -> None:
    """What is wrong here is found: an ignored line without an error would be one."""
    vgrads.bound("log.swf", procs="many")  # type: ignore[arg-type]
    _count: int = vgrads.plan("set.yaml").promise.probability  # type: ignore[assignment]
    vgrads.Bag(commands=["true"]).start()  # type: ignore[attr-defined]
    vgrads.plam("set.yaml")  # type: ignore[operator]
