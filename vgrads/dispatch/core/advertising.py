"""The ClassAds that dispatch policies read: nodes, jobs with their replicas, bags, the queue
(GridBot, section 4.1). Names are those of ClassAds; docs/policies.md defines them."""

from __future__ import annotations

from typing import Any

from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.state import AgentState, BagState
from vgrads.dispatch.core.tasks import DONE
from vgrads.policies.policy import job_ad as policy_job_ad

Ad = dict[str, Any]


def make_agent_ad(dispatch_index: DispatchIndex, agent: AgentState, now_s: float) -> Ad:
    """Return the ad of an agent: its attributes, and the history of its machine."""
    record = dispatch_index.record(agent)
    return {
        **agent.attributes,
        "Name": agent.name or agent.id,
        "Grid": agent.site,
        "Machine": agent.machine.partition("/")[2],
        "NumCpus": agent.procs,
        "Memory": agent.memory_mib,
        "JobsRunning": len(agent.assigned),
        # two digits: each new value costs a new order of all bags (bag_index)
        "ErrorRate": float(f"{record.error_rate:.2g}"),
        "Turnaround": float(f"{record.turnaround_s:.2g}"),
        "JobsToday": record.jobs_today(now_s),
        "RecentSuccess": record.lately(now_s),
    }


def make_job_ad(
    dispatch_index: DispatchIndex, bag: BagState, rules: BagSpec, task: int | None, now_s: float
) -> Ad:
    """Return the ad of a job; ``task`` None: any job without a running attempt, all equal for a
    policy."""
    agents = (
        [] if task is None else [dispatch_index.state.agents[n] for n in bag.tasks.agents_of(task)]
    )
    replicas: list[Ad] = []
    for agent in agents:
        sent_s = dispatch_index.assigned_s.get(
            (agent.number, bag.number, task or 0), agent.joined_s
        )
        replicas.append(
            {
                "Name": f"{bag.name}.{task}.{agent.assigned.get((bag.number, task or 0), 0)}",
                "Host": make_agent_ad(dispatch_index, agent, now_s),
                "SentTime": sent_s,
                "Age": now_s - sent_s,
            }
        )
    name = bag.name if task is None else f"{bag.name}.{task}"
    failures = 0 if task is None else bag.tasks.failures.get(task, 0)
    return policy_job_ad(name, rules.executable, replicas) | {
        "Procs": bag.procs,
        "Owner": bag.owner,
        "Failures": failures,
        "Hosts": [replica["Host"]["Name"] for replica in replicas],
    }


def make_bag_ad(bag: BagState, tail: bool) -> Ad:
    """Return the ad of a bag in its current state."""
    counts = bag.tasks.counts
    return {"Tail": tail, "JobsLeft": bag.tasks.left, "JobsDone": counts[DONE]}


def make_queue_ad(dispatch_index: DispatchIndex) -> Ad:
    """Return the ad of the queue: all bags that are not terminal."""
    return {"BOTsInQueue": len(dispatch_index.serving)}
