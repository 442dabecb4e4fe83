"""What became of a bag's tasks, read from its dispatcher's folder: while it works, or later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.fold_tasks import MOST_LOSSES
from vgrads.dispatch.core.records import COULD_NOT, END
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.core.tasks import DONE, FAILED, GIVEN, HELD, PENDING, WORDS
from vgrads.dispatch.explaining import look_at_tails, why_not
from vgrads.dispatch.server.messages import Said
from vgrads.dispatch.storage.journal import EndReader, look
from vgrads.dispatch.storage.kept import host_names, open_bag, read_status
from vgrads.dispatch.storage.outputs import OutputReader
from vgrads.kernel.errors import InputError

_MOST_HOSTS = 200
_NAMED = 20


class Results:
    """How attempts of a bag's tasks ended, with what they printed; further each time it is
    asked."""

    def __init__(self, folder: Path, number: int) -> None:
        self.kept = open_bag(folder, number)
        self._folder = folder
        self._ends = EndReader(folder / "journal", number)
        self._printed = OutputReader(folder / "bags" / f"{number:04d}" / "printed.bin")
        self._texts: dict[tuple[int, int], Said] = {}
        self._wrong: Counter[tuple[int, bool]] = Counter()

    def more(self) -> Iterator[dict[str, Any]]:
        """Those that have come since, in the order in which they ended."""
        for ends in self._ends.more():
            self.kept.grown()
            names = host_names(self._folder)
            for said in self._printed.more():
                self._texts[said.task, said.attempt] = said
            for end in ends.tolist():
                yield self._told(dict(zip(END.names or (), end, strict=True)), names)

    def _told(self, end: dict[str, Any], names: list[str]) -> dict[str, Any]:
        task, attempt, code, host = end["task"], end["attempt"], end["code"], end["host"]
        said = self._texts.pop((task, attempt), None)
        return {
            "task": task,
            "attempt": attempt,
            "code": None if code == COULD_NOT else code,
            "how": how_it_ended(code),
            "command": self.kept.bag.commands.command(task),
            "host": names[host] if host < len(names) else "?",
            "at_s": end["at_cs"] / 100.0,
            "ran_s": end["ran_s"],
            "peak_mib": round(end["peak_gib"] * 1024.0, 1),
            **{name: end[name] for name in ("waited_s", "fetched_s", "sent_s", "cpu_s")},
            "out": said.out if said else "",
            "err": said.err if said else "",
            "final": self._is_final(task, code),
        }

    def _is_final(self, task: int, code: int) -> bool:
        """True for the end that decides a task, by the rules of
        :mod:`vgrads.dispatch.core.state`."""
        if code == 0:
            return True
        self._wrong[task, code == COULD_NOT] += 1
        most = MOST_LOSSES if code == COULD_NOT else self.kept.bag.retries + 1
        return self._wrong[task, code == COULD_NOT] >= most


def results(
    folder: Path, number: int, tasks: Sequence[int] = (), failed: bool = False
) -> Iterator[dict[str, Any]]:
    """How attempts ended so far, in that order: of some tasks or of all, or only those that went
    wrong."""
    found = Results(folder, number)
    count = len(found.kept.bag.commands)
    for task in tasks:
        if not 0 <= task < count:
            raise InputError(
                f"has no task {task}: they go from 0 to {count - 1}", where=found.kept.bag.name
            )
    for result in found.more():
        if (not tasks or result["task"] in tasks) and (not failed or result["code"] != 0):
            yield result


def how_it_ended(code: int) -> str:
    """An end in words."""
    if code == 0:
        return "done"
    if code == COULD_NOT:
        return "could not be run there"
    if code == -1000:
        return "did not write what it declared"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def why(folder: Path, number: int, task: int, host: str = "") -> dict[str, Any]:
    """Why a task stands where it stands, in words and numbers; of a host, or of all, why it does
    not have it."""
    kept = open_bag(folder, number)
    state = look(folder / "journal")
    bag = state.bags.get(number)
    if not 0 <= task < len(kept.bag.commands):
        raise InputError(
            f"has no task {task}: they go from 0 to {len(kept.bag.commands) - 1}",
            where=kept.bag.name,
        )
    found: dict[str, Any] = {
        "task": task,
        "command": kept.bag.commands.command(task),
        "reasons": [],
    }
    if bag is None:
        found["reasons"].append("no dispatcher has taken the bag on yet")
        return found
    status = bag.tasks.status[task]
    found |= {
        "state": WORDS[status],
        "attempts": bag.tasks.attempts[task],
        "failures": bag.tasks.failures.get(task, 0),
        "hosts_lost": bag.tasks.losses.get(task, 0),
    }
    said = found["reasons"]
    if status == GIVEN:
        for at in (state.hosts[number] for number in bag.tasks.hosts_of(task)):
            said.append(f"host {at.name} of {at.site} has it, with {len(at.held) - 1} others")
    elif status == FAILED:
        lost = found["hosts_lost"] >= MOST_LOSSES
        said.append(
            f"{found['hosts_lost']} hosts were lost over it, or could not run it"
            if lost
            else (
                f"it failed {found['failures']} times; {bag.retries} more tries after the "
                "first were allowed"
            )
        )
    elif status == HELD and bag.tasks.order is not None:
        needs = bag.tasks.order.needs(task)
        said.append(
            "it needs " + ", ".join(f"task {n}: {WORDS[bag.tasks.status[n]]}" for n in needs)
        )
    elif status != DONE:
        said += _why_it_waits(folder, state, bag, task)
    if status in (PENDING, GIVEN):
        found["hosts"] = _why_not(folder, state, bag, task, host)
    return found


def _why_not(
    folder: Path, state: State, bag: BagState, task: int, wanted: str
) -> list[dict[str, Any]]:
    """What keeps the task from each host that is here."""
    core = Core(state, Rules(), lambda _: None)
    for number in state.bags:
        core.attach(number, open_bag(folder, number).bag)
    now_s = float(read_status(folder).get("now_s", state.now_s))
    core.awake_after_restart(now_s)
    look_at_tails(core)
    hosts = [h for h in state.hosts.values() if h.here and wanted in ("", h.name, h.id)]
    if wanted and not hosts:
        names = {h.name or h.id for h in state.hosts.values() if h.here}
        raise InputError(
            f"no host '{wanted}' is here",
            where="host",
            fix=f"here are {', '.join(sorted(names)[:_NAMED])}" if names else "none is here",
        )
    return [
        {
            "host": h.name or h.id,
            "site": h.site,
            "why": [asdict(r) for r in why_not(core, h, bag, task, now_s)],
        }
        for h in hosts[:_MOST_HOSTS]
    ]


def _why_it_waits(folder: Path, state: Any, bag: Any, task: int) -> list[str]:
    if bag.cancelled:
        return [f"its bag was cancelled: {bag.cancelled}"]
    hosts = [h for h in state.hosts.values() if h.here and not h.leaving]
    fit = [h for h in hosts if h.procs >= bag.procs and (not bag.sites or h.site in bag.sites)]
    before = (
        len(bag.tasks.again) + max(0, task - bag.tasks.cursor) if task >= bag.tasks.cursor else 0
    )
    said = [
        (
            f"{before} tasks of its bag are before it; {len(fit)} of {len(hosts)} hosts are "
            "wide enough and at its sites"
        )
    ]
    if not fit and hosts:
        said.append(
            f"it needs {bag.procs} processors of one host"
            + (f" at {', '.join(bag.sites)}" if bag.sites else "")
        )
    status = read_status(folder)
    of_bag = (b.get("problem") for b in status.get("bags", ()) if b["number"] == bag.number)
    said += filter(None, [status.get("problem"), next(of_bag, "")])
    said += [f"{r['site']}: {r['reason']}" for r in status.get("reasons", [])[-3:]]
    return said
