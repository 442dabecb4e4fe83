"""A host's agent against the smallest manager that speaks with it: nothing is lost, nothing is left
behind."""

import asyncio
import base64
import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.reference_manager import (
    KEY,
    PATIENCE_S,
    ReferenceManager,
    at_work,
    environment,
    hang_up,
)
from tests.agents import pythons
from tests.conftest import ROOT
from tests.waiting import runs, until
from vgrads.agent.commands import words_of
from vgrads.agent.launcher import as_bytes
from vgrads.agent.processes import MARK, environment_of, variable_of
from vgrads.agent.spawner import Spawner
from vgrads.drivers.api import SlotSpec
from vgrads.drivers.every_node import only_node
from vgrads.drivers.pilot import write_slot_script
from vgrads.exchange.agent_file import (
    build_agent_file,
    write_agent_command,
    write_installed_agent_command,
)


def spawned(spawner, command, output, folder=""):
    spawner.spawn(command, command, as_bytes(dict(os.environ)), (output, output), folder)
    (ended,) = spawner.reap(PATIENCE_S)
    return ended.code


@pytest.fixture(
    params=[(True, True), (False, True), (True, False)], ids=["descriptors", "looking", "python"]
)
def spawner(request):
    before = signal.getsignal(signal.SIGCHLD)
    item = Spawner(*request.param)
    yield item
    item.close()
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [
        ("true", 0, ""),
        ("ls -d /usr", 0, "/usr\n"),
        ("expr 'a b' : 'a b'", 0, "3\n"),
        ('echo "$((6 * 7))" && exit 3', 3, "42\n"),
        ("X=7 env | grep ^X=", 0, "X=7\n"),
        ("exit 9", 9, ""),
        ("no-such-program-here", 127, "no-such-program-here"),
        ("printf '%s' 'unbalanced", 2, "nterminated"),
        ("kill -9 $$", -9, ""),
        ("kill -TERM $$", -15, ""),
        ("", 0, ""),
        pytest.param(f"printf '{'ä' * 100_000}' | wc -c", 0, "200000\n", id="long"),
        pytest.param(f"true {'ä' * 100_000}", 0, "", id="long words"),
    ],
)
def test_commands_mean_what_a_shell_means(spawner, command, code, printed, tmp_path):
    with (tmp_path / "out").open("w+b") as out:
        assert spawned(spawner, command, out.fileno()) == code
    text = (tmp_path / "out").read_text()
    assert printed in text and bool(printed) == bool(text)


def test_the_spawner_stands_where_configured_and_leaves_no_group(spawner, tmp_path):
    with (tmp_path / "out").open("w+b") as out:
        (tmp_path / "own").write_text("echo $PWD\n")  # no first line: the shell runs it
        (tmp_path / "own").chmod(0o755)
        assert spawned(spawner, "./own", out.fileno(), str(tmp_path)) == 0
        spawner.spawn(
            "g", "sleep 60 & echo $!; exit 5", as_bytes(dict(os.environ)), (out.fileno(), 2)
        )
        (ended,) = spawner.reap(PATIENCE_S)
    where, number = (tmp_path / "out").read_text().split()
    assert where == str(tmp_path) and ended.code == 5
    assert ended.lingering or not runs(int(number))  # it may be gone already
    until(lambda: not runs(int(number)), "the end of its child")
    assert not spawner.signal(ended.pid, signal.SIGTERM) and len(spawner) == 0


def test_words_that_a_shell_would_change_are_left_to_it():
    assert words_of("a\t'b  c' d\u00a0e") == ["a", "b  c", "d\u00a0e"]
    for item in (
        "a $b",
        "a *",
        "A=b c",
        "cd x",
        "a\nb",
        "a ~",
        "a 'b",
        "a \\b",
        "a #b",
        "",
        " ",
        "a;b",
        "{a,b}",
    ):
        assert words_of(item) == []


def children(number):
    """The processes that a process has begun."""
    return [
        int(name) for name in Path(f"/proc/{number}/task/{number}/children").read_text().split()
    ]


def drive(scenario, **how):
    """Run a scenario against an agent."""

    async def whole():
        async with at_work(**how) as (manager, agent):
            await manager.until(lambda: manager.hellos)
            return await scenario(manager, agent)

    return asyncio.run(whole())


def test_tasks_tell_codes_signals_outputs_and_their_environment():
    long = "x" * 100_000
    commands = [
        "true",
        "exit 7",
        "kill -9 $$",
        "echo out; echo err >&2",
        "printf '%s' \"it's ü\n  \"'\"ok\"'",
        f"printf %s {long}",
        "env",
        "pwd; ls -A",
        "printf '\\377'",
        "test ${#PATH} -gt 0 && echo yes",
        "no-such-program-here",
    ]

    async def scenario(dispatcher, agent):
        ends = await dispatcher.run(
            *commands, env={"MINE": "a b", "VGRADS_TASK": "no"}, output_bytes=3000
        )
        codes = [item[3] for item in ends]
        assert codes == [0, 7, -9, 0, 0, 0, 0, 0, 0, 0, 127]
        assert (ends[3][7], ends[3][8]) == ("out\n", "err\n")
        assert ends[4][7] == 'it\'s ü\n  "ok"' and ends[5][7] == "x" * 3000
        payload = dict(re.findall(r"^(\w+)=(.*)$", ends[6][7], re.MULTILINE))
        assert (
            payload["MINE"],
            payload["VGRADS_BAG"],
            payload["VGRADS_TASK"],
            payload["VGRADS_ATTEMPT"],
        ) == (
            "a b",
            "1",
            "6",
            "0",
        )
        assert {item for item in payload if item.startswith("VGRADS_")} == {
            "VGRADS_BAG",
            "VGRADS_TASK",
            "VGRADS_ATTEMPT",
            "VGRADS_COPY",
            "VGRADS_PYTHON",
        }
        assert KEY not in ends[6][7]
        assert ends[7][7].count("\n") == 1 and ends[7][7].strip() == payload["PWD"]
        assert ends[8][7] == "\ufffd" and ends[9][7] == "yes\n"
        assert all(
            len(end[4]) == 4 and min(end[4]) >= 0 and end[5] >= 0 and end[6] > 0 for end in ends
        )
        hello = dispatcher.hellos[0]
        assert hello["procs"] == 2 and hello["held"] == [] and hello["memory_mib"] > 0
        await dispatcher.send(stop=True)
        assert await agent.code() == 0

    drive(scenario)


def test_over_tls_hundreds_of_tasks_share_messages_and_overtake_the_parked_question():
    async def scenario(dispatcher, agent):
        ends = await dispatcher.run(*["true"] * 400)
        assert [item[3] for item in ends] == [0] * 400
        assert len(dispatcher.ends_received) == 400 and len(dispatcher.messages) < 300
        await dispatcher.until(
            lambda: dispatcher.messages[-1].keys() == {"host", "life", "seq", "wait_s"}
        )  # parked
        await dispatcher.run("sleep .01", "true", bag=2)
        assert dispatcher.messages[-1]["wait_s"] == 30
        assert [item["seq"] for item in dispatcher.messages] == sorted(
            {item["seq"] for item in dispatcher.messages}
        )
        await dispatcher.send(drain=True)
        assert await agent.code() == 0 and dispatcher.messages[-1]["leaving"] == "drained"

    drive(scenario, secure=True)


def test_a_slow_task_does_not_keep_a_quick_from_being_reported():
    async def scenario(dispatcher, agent):
        await dispatcher.send(
            bags={"1": {"procs": 1}}, give=[[1, 0, 0, "sleep 60"], [1, 1, 0, "sleep .1"]]
        )
        await dispatcher.until(lambda: (1, 1, 0) in dispatcher.ended)
        assert dispatcher.overtaken >= 1  # the question was parked while both ran

    drive(scenario)


def test_requests_take_turns_where_streams_do_not_get_through():
    async def scenario(dispatcher, agent):
        ends = await dispatcher.run(*["true"] * 20)
        assert len(ends) == 20 and dispatcher.overtaken == 0
        await dispatcher.send(give=[[1, 50, 0, "sleep 60"]])
        await dispatcher.until(lambda: dispatcher.messages[-1]["wait_s"] == 1.0)

    drive(scenario, VGRADS_TURNS="1")


def test_what_is_not_acknowledged_is_sent_again_and_tasks_run_on():
    async def scenario(dispatcher, agent):
        dispatcher.cut_at_ends = 2
        give = [
            [1, 0, 0, "echo a"],
            [1, 1, 0, "sleep 60"],
            [1, 2, 0, "true"],
            [1, 3, 0, "sleep 60"],
            [1, 4, 0, "true"],
        ]
        await dispatcher.send(give=give)
        await dispatcher.until(
            lambda: len(dispatcher.hellos) == 3 and (1, 2, 0) in dispatcher.ended
        )
        assert (
            dispatcher.ends_received.count((1, 0, 0)) >= 2 and dispatcher.ended[1, 0, 0][7] == "a\n"
        )
        assert sorted(dispatcher.hellos[-1]["held"]) == [[1, 1, 0], [1, 3, 0], [1, 4, 0]]
        await dispatcher.send(
            give=[[1, 1, 0, "sleep 60"], [1, 4, 0, "true"]]
        )  # a manager that does not know
        await dispatcher.send(cancel=[[1, 1, 0], [1, 3, 0]])
        await dispatcher.until(lambda: len(dispatcher.ended) == 5)
        assert (
            dispatcher.ended[1, 1, 0][3] == -15 and dispatcher.ends_received.count((1, 4, 0)) == 1
        )
        assert (
            dispatcher.messages[-1]["wait_s"] in (0.0, 1.0, 10.0, 30)
            and len({message["life"] for message in dispatcher.messages}) == 1
        )
        await dispatcher.run(
            "true", bag=8
        )  # cut twice: they take turns now, when all before is answered
        before = dispatcher.overtaken
        await dispatcher.run("true", bag=9)
        # a connection that carried no answer before it was cut counts as one that never came about
        assert dispatcher.overtaken == before or dispatcher.cut_answered < 2

    drive(scenario)


def test_a_busy_manager_is_retried_and_a_message_that_is_too_large_is_split():
    async def scenario(dispatcher, agent):
        dispatcher.statuses = [503]
        await dispatcher.send(give=[[1, n, 0, f"printf %4000s {n}"] for n in range(40)])
        await dispatcher.until(lambda: len(dispatcher.ended) == 40)
        dispatcher.statuses = [413]
        await dispatcher.send(give=[[2, n, 0, f"printf %4000s {n}"] for n in range(40)])
        await dispatcher.until(lambda: len(dispatcher.ended) == 80)
        assert len(dispatcher.hellos) >= 3

    drive(scenario)


def test_recall_takes_what_has_not_begun_and_cancel_what_has():
    stubborn = "trap '' TERM; sleep 60"

    async def scenario(dispatcher, agent):
        await dispatcher.send(
            give=[[1, n, 0, name] for n, name in enumerate(["sleep 60", stubborn] * 2 + ["true"])],
            beat_s=0.1,
        )
        await dispatcher.until(lambda: len(dispatcher.messages[-1].get("running", ())) == 2)
        assert all(item[3] >= 0 for item in dispatcher.messages[-1]["running"])
        await dispatcher.send(recall=[[1, 0, 0], [1, 3, 0], [1, 4, 0]])
        await dispatcher.until(lambda: len(dispatcher.returned) == 2)
        assert sorted(dispatcher.returned) == [(1, 3, 0), (1, 4, 0)]
        await dispatcher.send(
            cancel=[[1, 1, 0], [1, 2, 0]]
        )  # one that runs and will not hear, one that waits
        await dispatcher.until(
            lambda: (1, 2, 0) in dispatcher.returned and (1, 1, 0) in dispatcher.ended
        )
        assert dispatcher.ended[1, 1, 0][3] == -15
        await dispatcher.send(
            give=[[1, 7, 0, "true"], [1, 3, 0, "true"]]
        )  # one that was given back may come again
        await dispatcher.until(lambda: {(1, 7, 0), (1, 3, 0)} <= dispatcher.ended.keys())
        await dispatcher.send(drain=True, give=[[1, 8, 0, "true"]])
        await dispatcher.until(lambda: (1, 8, 0) in dispatcher.returned)
        await dispatcher.send(cancel=[[1, 0, 0]])
        assert await agent.code() == 0 and (1, 0, 0) in dispatcher.ended

    drive(scenario)


@pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "replaced"])
def test_a_task_that_is_given_again_begins_when_its_earlier_attempt_has_ended(cancelled, tmp_path):
    """Whether it was cancelled in the same message or not, and although a processor is free."""
    busy = tmp_path / "busy"
    first = f"trap 'sleep .3; rmdir {busy}; exit 1' TERM; mkdir {busy}; sleep 60 & wait"

    async def scenario(dispatcher, agent):
        await dispatcher.send(give=[[1, 4, 1, first]])
        await dispatcher.until(busy.exists)
        await dispatcher.send(
            give=[[1, 4, 2, f"test ! -e {busy}"]], cancel=[[1, 4, 1]] if cancelled else []
        )
        await dispatcher.until(lambda: (1, 4, 2) in dispatcher.ended)
        assert dispatcher.ended[1, 4, 2][3] == 0
        assert (1, 4, 1) in dispatcher.ended

    drive(scenario)


def test_limits_of_time_memory_and_processors_hold():
    eat = f"{sys.executable} -c 'x = bytearray(300 << 20); import time; time.sleep(60)'"

    async def scenario(dispatcher, agent):
        (slow,) = await dispatcher.run("echo on it >&2; sleep 60", bag=1, limit_s=0.2)
        assert slow[3] == -9 and slow[8] == "on it\ntime limit" and slow[4][2] < 5
        (big,) = await dispatcher.run(f'sh -c "{eat}" & wait', bag=2, memory_mib=100)
        assert big[3] == -9 and re.fullmatch(
            r"out of memory: \d+ MiB in use, 100 MiB are stated", big[8]
        )
        (wide,) = await dispatcher.run("true", bag=3, procs=3)
        assert wide[3] is None and wide[8] == "needs 3 processors, the agent has 2"
        both = await dispatcher.run("echo $$; sleep .1", "echo $$; sleep .1", bag=4, procs=2)
        assert both[1][4][0] >= 0.1  # one after the other

    drive(scenario)


def test_memory_that_processes_of_a_task_share_counts_once():
    forks = "import os, time; x = bytearray(60 << 20); [os.fork() for _ in range(2)]; time.sleep(1)"
    vforks = (  # its child waits at the named pipe, before execve(2)
        "import os; x = bytearray(60 << 20); "
        'pipe = (os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0); '
        'os.wait4(os.posix_spawn("/bin/true", ["true"], {}, file_actions=[pipe]), 0)'
    )

    async def scenario(dispatcher, agent):
        python = f"{sys.executable} -c"
        (shared,) = await dispatcher.run(f"{python} '{forks}'", bag=1, memory_mib=150)
        assert (shared[3], shared[8]) == (0, "")
        pipe = "mkfifo pipe; (sleep 1; echo >pipe) &"
        (same,) = await dispatcher.run(f"{pipe} {python} '{vforks}'", bag=2, memory_mib=120)
        assert (same[3], same[8]) == (0, "")

    drive(scenario)


def test_tasks_wait_for_free_descriptors():
    async def scenario(dispatcher, agent):
        ends = await dispatcher.run(*["sleep .2; echo done"] * 60)
        assert [(end[3], end[7]) for end in ends] == [(0, "done\n")] * 60, ends
        await dispatcher.send(drain=True)
        assert await agent.code() == 0

    drive(scenario, files=64, VGRADS_PROCS="60")


def test_nothing_of_a_task_outlives_it(tmp_path):
    note = tmp_path / "note"

    async def scenario(dispatcher, agent):
        loop = f"setsid sh -c 'echo $$ >>{note}; sleep 60' & sleep .6; sleep 61 & echo $! >>{note}"
        (end,) = await dispatcher.run(loop)
        assert end[3] == 0
        left = [int(item) for item in note.read_text().split()]
        assert len(left) == 2
        await asyncio.to_thread(until, lambda: not any(runs(number) for number in left))
        await dispatcher.send(give=[[5, 0, 0, f"echo $$ >{note}; setsid sleep 60"]])
        await asyncio.to_thread(until, lambda: len(note.read_text().split()) == 1)
        await dispatcher.send(stop=True)
        assert await agent.code() == 0
        assert not runs(int(note.read_text()))

    drive(scenario)


HIDE = """
echo $$ >>"$1"
exec <&- >&- 2>&-
[ -z "$2" ] || setsid env -i /bin/sh "$0" "$1" &
exec sleep 300
"""
"""Leaves the session, the environment and all files of a task; with a second word, twice."""


def test_what_a_task_has_hidden_ends_with_it_and_what_others_have_started_runs_on(tmp_path):
    hidden, other, go, hide = (tmp_path / name for name in ("hidden", "other", "go", "hide"))
    hide.write_text(HIDE)

    def numbers(path):
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def gone(path, count):
        return len(numbers(path)) == count and not any(map(runs, numbers(path)))

    def leaves(path, word=""):
        return f"(setsid env -i /bin/sh {hide} {path} {word} &)"

    async def scenario(dispatcher, agent):
        long = f"{leaves(other)}; until test -e {go}; do sleep .05; done"
        await dispatcher.send(bags={"1": {"procs": 1}}, give=[[1, 0, 0, long]])
        await asyncio.to_thread(until, lambda: numbers(other))
        until_there = f"until [ $(wc -l <{hidden}) -ge {{}} ]; do sleep .01; done"
        hidden.touch()
        quick = f"(setsid nohup /bin/sh {hide} {hidden} >/dev/null 2>&1 &); {until_there.format(1)}"
        assert (await dispatcher.run(quick, bag=2))[0][3] == 0
        await asyncio.to_thread(until, lambda: gone(hidden, 1))
        assert all(map(runs, numbers(other)))  # it may be one of the task that runs
        go.touch()
        await asyncio.to_thread(until, lambda: gone(other, 1))
        await dispatcher.run(f"{leaves(hidden, 'twice')}; {until_there.format(3)}", bag=3)
        await asyncio.to_thread(until, lambda: gone(hidden, 3))
        go.unlink()
        await dispatcher.send(bags={"4": {"procs": 1}}, give=[[4, 0, 0, long]])
        await asyncio.to_thread(until, lambda: len(numbers(other)) == 2)
        for number in children(agent.process.pid):
            os.kill(number, signal.SIGKILL)
        await agent.code()
        assert gone(other, 2)

    drive(scenario, VGRADS_PROCS="2")


def test_an_agent_ends_what_a_single_that_was_killed_has_left(tmp_path):
    note = tmp_path / "note"

    async def scenario(dispatcher, agent):
        await dispatcher.send(give=[[1, 0, 0, f"echo $$ >{note}; sleep 60"]])
        await asyncio.to_thread(until, lambda: note.exists() and note.read_text().endswith("\n"))
        number = int(note.read_text())
        folder = Path(f"/proc/{number}/cwd").resolve().parent
        for item in (agent.process.pid, *children(agent.process.pid)):
            os.kill(item, signal.SIGSTOP)  # neither sees the other end
        for item in (*children(agent.process.pid), agent.process.pid):
            os.kill(item, signal.SIGKILL)
        await agent.code()
        assert runs(number) and folder.exists()
        slot = dispatcher.hellos[0]["slot"]
        again = environment(dispatcher, str(tmp_path), VGRADS_SLOT=slot, TMPDIR=str(folder.parent))
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", write_agent_command(sys.executable), env=again
        )
        await dispatcher.until(lambda: len(dispatcher.hellos) == 2)
        assert not runs(number) and not folder.exists()
        assert dispatcher.messages[0]["host"] == dispatcher.messages[-1]["host"]
        assert dispatcher.messages[0]["life"] != dispatcher.messages[-1]["life"]
        await dispatcher.send(drain=True)
        assert await process.wait() == 0

    drive(scenario)


@pytest.mark.parametrize("killed", ["agent", "guardian"])
def test_nothing_of_a_killed_agent_outlives_its_slot(killed, tmp_path):
    """A new attempt begins when the slot has ended: by then all of the first one is dead, and its
    folder gone."""
    note = tmp_path / "note"

    async def scenario(dispatcher, agent_state):
        await dispatcher.send(
            give=[[1, 0, 1, f"echo $$ >{note}; trap '' TERM; sleep 60 & wait; sleep 60"]]
        )
        await asyncio.to_thread(until, lambda: note.exists() and note.read_text().endswith("\n"))
        number = int(note.read_text())
        folder = Path(f"/proc/{number}/cwd").resolve().parent
        (agent,) = children(agent_state.process.pid)
        if killed == "agent":
            os.kill(agent, signal.SIGKILL)
            assert await agent_state.code() == 128 + signal.SIGKILL
            assert not runs(number) and not folder.exists()
        else:
            agent_state.process.kill()
            await asyncio.to_thread(until, lambda: not runs(number) and not runs(agent))
            await asyncio.to_thread(until, lambda: not folder.exists())

    drive(scenario)


def test_a_signal_while_an_agent_starts_leaves_no_folder(tmp_path):
    code = (
        "import os, signal, time\n"
        "from vgrads.agent.parent_job import ParentJob\n"
        "from vgrads.agent.scratch import fork_agent, make_scratch\n"
        f"scratch, lock = make_scratch({str(tmp_path)!r}, 'nobody')\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "fork_agent('nobody', scratch, lock, ParentJob(''))\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_a_task_begins_again_when_what_a_dead_agent_left_of_it_is_dead():
    """An agent is given what another one of its machine had, which was killed together with its
    guardian."""

    async def scenario(dispatcher, agent):
        (end,) = await dispatcher.run("pwd")
        dead = Path(end[7].strip()).parent.parent / "vgrads-dead"
        dead.mkdir()
        (dead / "mark").write_text("dead.agent")
        (dead / "lock").touch()
        marks = [dead.parent / f"vgrads-1-{name}.given-back" for name in ("old", "new")]
        for mark, age_s in zip(marks, (3600, 0), strict=True):
            mark.touch()
            os.utime(mark, (mark.stat().st_mtime - age_s,) * 2)
        bearing = {**os.environ, "VGRADS_COPY": "dead.agent.1.0.1"}
        with subprocess.Popen(["sleep", "60"], env=bearing, start_new_session=True) as left:
            await dispatcher.send(
                give=[
                    [1, 7, 2, f"test ! -e /proc/{left.pid}/environ || cat /proc/{left.pid}/environ"]
                ]
            )
            await dispatcher.until(lambda: (1, 7, 2) in dispatcher.ended)
            assert left.wait(PATIENCE_S) == -signal.SIGKILL and not dead.exists()
        assert dispatcher.ended[1, 7, 2][7] == ""  # it was dead when the task began
        assert [mark.exists() for mark in marks] == [False, True]

    drive(scenario)


def test_a_process_that_is_just_being_executed_is_found():
    """The system shows no environment for a moment after a process has been started."""
    marked = {**os.environ, MARK: "just.started"}
    for _ in range(200):
        with subprocess.Popen(["sleep", "60"], env=marked, start_new_session=True) as child:
            assert b"just.started" in environment_of(child.pid)
            child.kill()
    with subprocess.Popen(["sleep", "60"], env={}) as child:
        assert environment_of(child.pid) == b""
        child.kill()


def test_an_idle_host_leaves_and_a_wrong_key_ends_it():
    async def idle(dispatcher, agent):
        await dispatcher.run("true")
        await dispatcher.send(idle_s=0.1)
        assert await agent.code() == 0 and dispatcher.messages[-1]["leaving"] == "idle"

    drive(idle)

    async def refused():
        async with at_work(VGRADS_HOST_KEY="another") as (manager, agent):
            assert await agent.code() == 77 and not manager.messages
            assert b"refuses" in await agent.process.stderr.read()

    asyncio.run(refused())


def test_sigterm_and_the_slots_end_tell_what_became_of_the_tasks():
    async def ask_to_stop(dispatcher, agent):
        await dispatcher.send(give=[[1, n, 0, "sleep 60"] for n in range(3)], beat_s=0.1)
        await dispatcher.until(lambda: dispatcher.messages[-1].get("running"))
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.code() == 0
        assert (
            dispatcher.returned == [(1, 2, 0)] and dispatcher.messages[-1]["leaving"] == "signal 15"
        )
        assert [(item[3], item[8]) for item in dispatcher.ended.values()] == [
            (None, "the agent is leaving: signal 15")
        ] * 2

    drive(ask_to_stop)

    async def over(manager, agent):
        assert 0 < manager.hellos[0]["left_s"] <= 2.5
        await manager.send(give=[[1, 0, 0, "sleep 60"]])
        assert await agent.code() == 0
        assert manager.ended[1, 0, 0][8] == "the agent is leaving: the slot ends"

    drive(over, VGRADS_LEFT_S="2.5")


def test_files_come_by_digest_and_go_before_the_end_is_reported():
    bodies = [b"one\n" * 1000, b"two"]
    first, second = (hashlib.sha256(entry).hexdigest() for entry in bodies)

    async def scenario(dispatcher, agent):
        dispatcher.inputs = {first: bodies[0], second: bodies[1], "0" * 64: b"forged"}
        (lost, forged) = ("f" * 64, "0" * 64)
        await dispatcher.send(
            give=[
                [
                    1,
                    0,
                    0,
                    "cat in/a b >'out/é 1'; echo more >>b",
                    {"in/a": first, "b": second},
                    ["out/é 1", "b"],
                ],
                [1, 1, 0, "cat a; ls -A", {"a": first}],
                [1, 2, 0, "exit 4", {}, ["gone"]],
                [1, 3, 0, "true", {}, ["gone"]],
                [1, 4, 0, "true", {"a": lost}],
                [1, 5, 0, "true", {"a": forged}],
                [1, 6, 0, "true", {"../a": first}],
                [1, 7, 0, "true", {"a": "no digest"}],
            ]
        )
        await dispatcher.until(lambda: len(dispatcher.ended) == 8)
        ends = [dispatcher.ended[1, n, 0] for n in range(8)]
        assert dispatcher.outputs == {
            "/outputs/1/0/0/out/é 1": bodies[0] + bodies[1],
            "/outputs/1/0/0/b": b"twomore\n",
        }
        assert [item[3] for item in ends] == [0, 0, 4, -1000, None, None, None, None]
        assert ends[1][7].endswith("one\na\n")
        # nothing is sent of a task that failed
        assert (ends[2][8], ends[3][8]) == ("", "did not write 'gone'")
        assert (
            "404" in ends[4][8]
            and "digest" in ends[5][8]
            and "../a" in ends[6][8]
            and "the input 'a' cannot be read" in ends[7][8]
        )
        assert dispatcher.fetched.count(first) == 1  # kept
        cached = {item for message in dispatcher.messages for item in message.get("cached", ())}
        assert cached == {first, second}
        dispatcher.cut()
        await dispatcher.until(lambda: len(dispatcher.hellos) == 2)
        assert dispatcher.hellos[1]["cached"] == sorted([first, second])

    drive(scenario)


async def proxy(reader, writer):
    """One that asks for a name and a password."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if f"Basic {base64.b64encode(b'me:p@ss').decode()}" not in head:
        writer.write(b"HTTP/1.1 407 Who are you\r\n\r\n")
        await hang_up(writer)
        return
    agent, port = head.split()[1].split(":")
    there_reader, there_writer = await asyncio.open_connection(agent, int(port))
    writer.write(b"HTTP/1.1 200 Go on\r\n\r\n")

    async def pump(source, sink):
        while piece := await source.read(65536):
            sink.write(piece)
        sink.close()

    await asyncio.gather(
        pump(reader, there_writer), pump(there_reader, writer), return_exceptions=True
    )
    for item in (writer, there_writer):
        await hang_up(item)


def test_through_a_proxy():
    async def scenario():
        passed = []

        async def counted(reader, writer):
            passed.append(asyncio.current_task())
            await proxy(reader, writer)

        server = await asyncio.start_server(counted, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with at_work(secure=True, VGRADS_PROXY=f"http://me:p%40ss@127.0.0.1:{port}") as (
            manager,
            _,
        ):
            digest = hashlib.sha256(b"x").hexdigest()
            manager.inputs = {digest: b"x"}
            await manager.send(give=[[1, 0, 0, "cat a", {"a": digest}]])
            await manager.until(lambda: manager.ended)
            assert manager.ended[1, 0, 0][7] == "x" and len(passed) == 2
        server.close()
        await asyncio.gather(*passed)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "python", [path for minor, path in sorted(pythons().items()) if minor >= 8]
)
def test_its_a_single_file_runs_under_every_python_here(python):
    async def scenario(dispatcher, agent):
        ends = await dispatcher.run("echo a", "exit 3", *["true"] * 20)
        assert [item[3] for item in ends] == [0, 3] + [0] * 20 and ends[0][7] == "a\n"
        await dispatcher.send(drain=True)
        assert await agent.code() == 0

    drive(scenario, secure=True, python=python)


PILOTS = pytest.mark.parametrize(
    "pilot",
    [write_agent_command(sys.executable), write_installed_agent_command()],
    ids=["file", "installed"],
)


@PILOTS
def test_the_pilots_command_runs_and_leaves_no_file(tmp_path, pilot):
    assert build_agent_file() == build_agent_file.__wrapped__() and len(pilot) < 100_000

    async def scenario():
        manager = ReferenceManager()
        server = await manager.serve()
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            pilot,
            env=environment(manager, str(tmp_path)),
            cwd="/",
        )
        (end,) = await manager.run("ls -A .. ../..")
        agents = (process.pid, *children(process.pid))
        assert not any(variable_of(pid, "VGRADS_HOST_KEY") for pid in agents)
        digest = hashlib.sha256(b"x").hexdigest()
        manager.inputs = {digest: b"x"}
        await manager.send(
            give=[[2, 0, 0, "cp a b", {"a": digest}, ["b"]]]
        )  # modules that load late load still
        await manager.until(lambda: (2, 0, 0) in manager.ended)
        assert manager.ended[2, 0, 0][3] == 0 and manager.outputs == {"/outputs/2/0/0/b": b"x"}
        assert ".pyz" not in end[7] and list(tmp_path.iterdir())
        await manager.send(drain=True)
        assert await process.wait() == 0 and not list(tmp_path.iterdir())
        server.close()
        await manager.close()

    asyncio.run(scenario())


@PILOTS
def test_the_pilots_command_imports_nothing_from_its_folder(tmp_path, pilot):
    for name in ("base64", "tempfile", "dispatch", "execmgr", "json", "vgrads"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('a file of the user was imported')\n"
        )
    code, text = shell_environment(f"unset VGRADS_CONTACT; {pilot}", tmp_path)
    assert code == 78 and "VGRADS_CONTACT" in text


def shell_environment(command, folder=None):
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=folder
    )
    return done.returncode, done.stderr


def test_the_pilots_command_says_that_there_is_no_python():
    code, text = shell_environment(write_agent_command("no-such-python3"))
    assert (code, text) == (69, "vgrads: no no-such-python3 here\n")
    for minor, python in pythons().items():
        if minor < 8:
            code, text = shell_environment(write_agent_command(python))
            assert code == 69 and "no Python 3.8 or newer here" in text and text.count("\n") == 1
    fallback = write_agent_command("no-such-python3", sys.executable)
    code, text = shell_environment(f"unset VGRADS_CONTACT\n{fallback}")
    assert code == 78 and "VGRADS_CONTACT" in text


@pytest.mark.parametrize("killed", ["before", "after", ""])
def test_an_agent_knows_that_the_script_of_its_job_is_gone(tmp_path, killed):
    """Also where the script was killed before the agent could look for it."""
    looks = (
        "import os, sys, time; from vgrads.agent.parent_job import ParentJob\n"
        "open('begun', 'w').close()\n"
        "while not os.path.exists('look'): time.sleep(.01)\n"
        "job = ParentJob(os.environ['VGRADS_SCRIPT'])\n"
        "open('looked', 'w').close()\n"
        "while not os.path.exists('end'): time.sleep(.01)\n"
        "open('over.draft', 'w').write(str(job.is_over()))\n"
        "os.rename('over.draft', 'over')\n"
    )
    (tmp_path / "looks.py").write_text(looks)
    pilot = f"cd '{tmp_path}' && exec {sys.executable} looks.py"
    spec = SlotSpec(id="s", name="s", site="x", queue="", procs=1, duration_s=600.0, pilot=pilot)
    script = tmp_path / "job.sh"
    script.write_text(write_slot_script(spec, str(tmp_path / "marks"), only_node(pilot)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(["/bin/sh", script], env=environment) as job:
        until((tmp_path / "begun").exists, "the pilot")
        if killed == "before":
            job.kill()
            job.wait()
        (tmp_path / "look").touch()
        until((tmp_path / "looked").exists, "its look")
        if killed == "after":
            job.kill()
            job.wait()
        (tmp_path / "end").touch()
        until((tmp_path / "over").exists, "its answer")
    assert (tmp_path / "over").read_text() == str(bool(killed))
