"""What policies see: hosts, jobs with their replicas, bags, the queue (GridBot, section 4.1). Names
are those of ClassAds; docs/policies.md tells what each means."""

from __future__ import annotations

from typing import Any

from vgrads.bags.bag import Bag
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.tasks import DONE
from vgrads.policies.policy import job_ad as policy_job_ad

Ad = dict[str, Any]


def host_ad(board: Board, host: Host, now_s: float) -> Ad:
    """A host: what it says of itself, and what is known of its machine."""
    record = board.record(host)
    return {
        **host.attributes,
        "Name": host.name or host.id,
        "Grid": host.site,
        "Machine": host.machine.partition("/")[2],
        "NumCpus": host.procs,
        "Memory": host.memory_mib,
        "JobsRunning": len(host.held),
        "ErrorRate": float(f"{record.error_rate:.2g}"),
        "Turnaround": float(f"{record.turnaround_s:.2g}"),
        "JobsToday": record.jobs_today(now_s),
        "RecentSuccess": record.lately(now_s),
    }


def job_ad(board: Board, bag: BagState, rules: Bag, task: int | None, now_s: float) -> Ad:
    """A job; ``task`` None: any of those that run nowhere, which are all alike to a policy."""
    hosts = [] if task is None else [board.state.hosts[n] for n in bag.tasks.hosts_of(task)]
    replicas: list[Ad] = []
    for host in hosts:
        sent_s = board.given_s.get((host.number, bag.number, task or 0), host.joined_s)
        replicas.append(
            {
                "Name": f"{bag.name}.{task}.{host.held.get((bag.number, task or 0), 0)}",
                "Host": host_ad(board, host, now_s),
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


def bag_ad(bag: BagState, tail: bool) -> Ad:
    """A bag as it stands."""
    counts = bag.tasks.counts
    return {"Tail": tail, "JobsLeft": bag.tasks.left, "JobsDone": counts[DONE]}


def queue_ad(board: Board) -> Ad:
    """All bags that are not over."""
    return {"BOTsInQueue": len(board.serving)}
