"""Results of a bag's tasks, read from its dispatcher's folder: during its work, or later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vgrads.dispatch.core.fold import MOST_LOSSES
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import END
from vgrads.dispatch.core.state import BagState, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import ASSIGNED, BLOCKED, DONE, FAILED, PENDING, WORDS
from vgrads.dispatch.explanation import explain_refusal, format_losses, look_at_tails
from vgrads.dispatch.storage.carried import find_carried_folder, read_carried
from vgrads.dispatch.storage.folder import open_bag
from vgrads.dispatch.storage.journal import EndReader, read_state
from vgrads.dispatch.storage.outputs import OutputReader
from vgrads.dispatch.storage.retries import AttemptRounds
from vgrads.dispatch.storage.status import read_agent_names, read_status
from vgrads.exchange.messages import PrintedOutput
from vgrads.exchange.values import COULD_NOT
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count

_MOST_AGENTS = 200
_NAMED = 20


class Results:
    """Ends of attempts of a bag's tasks, with their printed text; each call returns further
    ones."""

    def __init__(self, folder: Path, number: int) -> None:
        self.bag = open_bag(folder, number)
        self._folder = folder
        self._ends = EndReader(folder / "journal", number)
        bag = folder / "bags" / f"{number:04d}"
        self._carried: Path | None = bag
        self._printed = OutputReader(bag / "printed.bin")
        self._texts: dict[tuple[int, int], PrintedOutput] = {}
        self._wrong: Counter[tuple[int, int, bool]] = Counter()
        self._rounds = AttemptRounds(folder, number)

    def more(self) -> Iterator[dict[str, Any]]:
        """Return the ends since the last call, in order."""
        yield from self._carried_rows()
        for ends in self._ends.more():
            self.bag.added()
            self._rounds.look()
            names = read_agent_names(self._folder)
            for printed_outputs in self._printed.more():
                self._texts[printed_outputs.task, printed_outputs.attempt] = printed_outputs
            for end in ends.tolist():
                row = dict(zip(END.names or (), end, strict=True))
                # popped: only texts whose ends were not read yet stay in memory
                yield self._result_row(
                    row, names, self._texts.pop((row["task"], row["attempt"]), None)
                )

    def _carried_rows(self) -> Iterator[dict[str, Any]]:
        """Return the results of earlier runs, once."""
        if self._carried is None:
            return
        folder, self._carried = self._carried, None
        ends, agents = read_carried(folder)
        names = [name for name, _ in agents]
        before = OutputReader(find_carried_folder(folder) / "printed.bin").more()
        texts = {output.task: output for output in before}
        for end in ends.tolist():
            row = dict(zip(END.names or (), end, strict=True))
            yield self._result_row(row, names, texts.get(row["task"])) | {"reused": True}

    def _result_row(
        self, end: dict[str, Any], names: list[str], printed: PrintedOutput | None
    ) -> dict[str, Any]:
        task, attempt, code, agent = end["task"], end["attempt"], end["code"], end["host"]
        return {
            "task": task,
            "attempt": attempt,
            "code": None if code == COULD_NOT else code,
            "how": exit_text(code),
            "command": self.bag.bag.label(task),
            "host": names[agent] if agent < len(names) else "?",
            "at_s": end["at_cs"] / 100.0,
            "ran_s": end["ran_s"],
            "peak_mib": round(end["peak_gib"] * 1024.0, 1),
            **{name: end[name] for name in ("waited_s", "fetched_s", "sent_s", "cpu_s")},
            "out": printed.out if printed else "",
            "err": printed.err if printed else "",
            **({"value": printed.value if printed else ""} if self.bag.bag.python else {}),
            "final": self._is_final(task, attempt, code),
            "reused": False,
        }

    def _is_final(self, task: int, attempt: int, code: int) -> bool:
        """True for the end that decides a task until it is retried by command, by the rules of
        :mod:`vgrads.dispatch.core.state`."""
        if code == 0:
            return True
        key = task, self._rounds.of(task, attempt), code == COULD_NOT
        self._wrong[key] += 1
        return self._wrong[key] >= (MOST_LOSSES if key[2] else self.bag.bag.retries + 1)


def results(
    folder: Path, number: int, tasks: Sequence[int] = (), failed: bool = False
) -> Iterator[dict[str, Any]]:
    """Return ends of attempts so far, in order: of some tasks or of all, or only failures."""
    outcome = Results(folder, number)
    count = len(outcome.bag.bag.commands)
    for task in tasks:
        if not 0 <= task < count:
            raise InputError(
                f"has no task {task}: tasks are numbered from 0 to {count - 1}",
                where=outcome.bag.bag.name,
            )
    for result in outcome.more():
        if (not tasks or result["task"] in tasks) and (not failed or result["code"] != 0):
            yield result


def exit_text(code: int) -> str:
    """Describe an exit code."""
    if code == 0:
        return "done"
    if code == COULD_NOT:
        return "could not be run there"
    if code == -1000:
        return "did not write its declared outputs"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def why(folder: Path, number: int, task: int, agent: str = "") -> dict[str, Any]:
    """Explain the state of a task, with numbers; for an agent, or for all, why it does not have the
    task."""
    stored_bag = open_bag(folder, number)
    state = read_state(folder / "journal")
    bag = state.bags.get(number)
    if not 0 <= task < len(stored_bag.bag.commands):
        raise InputError(
            f"has no task {task}: tasks are numbered from 0 to {len(stored_bag.bag.commands) - 1}",
            where=stored_bag.bag.name,
        )
    row: dict[str, Any] = {
        "task": task,
        "command": stored_bag.bag.label(task),
        "state": WORDS[PENDING],
        "attempts": 0,
        "failures": 0,
        "hosts_lost": 0,
        "reasons": [],
    }
    if bag is None:
        row["reasons"].append("no dispatcher has started the bag yet")
        return row
    status = bag.tasks.status[task]
    row |= {
        "state": WORDS[status],
        "attempts": bag.tasks.attempts[task],
        "failures": bag.tasks.failures.get(task, 0),
        "hosts_lost": bag.tasks.losses.get(task, 0),
    }
    reasons = row["reasons"]
    if status == ASSIGNED:
        for at in (state.agents[number] for number in bag.tasks.agents_of(task)):
            reasons.append(
                f"agent {at.name} of {at.site} has it, with {len(at.assigned) - 1} others"
            )
    elif status == FAILED:
        lost = row["hosts_lost"] >= MOST_LOSSES
        reasons.append(
            format_losses(bag, task)
            if lost
            else (
                f"it failed {format_count(row['failures'], 'time')}; "
                f"{format_count(bag.retries, 'retry', 'were')} allowed"
            )
        )
    elif status == BLOCKED and bag.tasks.order is not None:
        needs = bag.tasks.order.needs(task)
        reasons.append(
            "it needs " + ", ".join(f"task {n}: {WORDS[bag.tasks.status[n]]}" for n in needs)
        )
    elif status != DONE:
        reasons += _explain_waiting(folder, state, bag, task)
    if status in (PENDING, ASSIGNED):
        row["hosts"] = _list_obstacles(folder, state, bag, task, agent)
    return row


def _list_obstacles(
    folder: Path, state: State, bag: BagState, task: int, state_filter: str
) -> list[dict[str, Any]]:
    """Return the obstacle between the task and each connected agent."""
    # a core that records nothing: it only explains what that of the dispatcher does
    core = Core(state, Rules(), lambda _: None)
    for number in state.bags:
        core.attach(number, open_bag(folder, number).bag)
    now_s = float(read_status(folder).get("now_s", state.now_s))
    core.awake_after_restart(now_s)
    look_at_tails(core)
    agents = [h for h in state.agents.values() if h.here and state_filter in ("", h.name, h.id)]
    if state_filter and not agents:
        names = {h.name or h.id for h in state.agents.values() if h.here}
        raise InputError(
            f"no agent '{state_filter}' is here",
            where="host",
            fix=f"the agents here are {', '.join(sorted(names)[:_NAMED])}"
            if names
            else "no agent is here",
        )
    return [
        {
            "host": h.name or h.id,
            "site": h.site,
            "why": [asdict(r) for r in explain_refusal(core, h, bag, task, now_s)],
        }
        for h in agents[:_MOST_AGENTS]
    ]


def _explain_waiting(folder: Path, state: Any, bag: Any, task: int) -> list[str]:
    if bag.cancelled:
        return [f"its bag was cancelled: {bag.cancelled}"]
    agents = [h for h in state.agents.values() if h.here and not h.leaving]
    fit = [agent for agent in agents if bag.fits(agent)]
    before = (
        len(bag.tasks.again) + max(0, task - bag.tasks.cursor) if task >= bag.tasks.cursor else 0
    )
    printed_outputs = [
        (
            f"{format_count(before, 'task', 'precede')} it in its bag; {len(fit)} of "
            f"{format_count(len(agents), 'agent', 'are')} "
            "wide enough and at its sites"
        )
    ]
    if not fit and agents:
        printed_outputs.append(
            f"it needs {format_count(bag.procs, 'processor')} of one agent"
            + (f" at {', '.join(bag.sites)}" if bag.sites else "")
        )
    status = read_status(folder)
    of_bag = (b.get("problem") for b in status.get("bags", ()) if b["number"] == bag.number)
    printed_outputs += filter(None, [status.get("problem"), next(of_bag, "")])
    printed_outputs += [f"{r['site']}: {r['reason']}" for r in status.get("reasons", [])[-3:]]
    return printed_outputs
