"""What drivers say to a shell, to the letter; and that nothing from outside can break out of it."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.drivers.api import SiteAccess, SlotSpec, SlotState, mark
from vgrads.drivers.batch_site import BatchSite
from vgrads.drivers.cloud import NodePrice, user_data
from vgrads.drivers.dialect import MARGIN_S, JobSubmission
from vgrads.drivers.gridengine import GridEngine
from vgrads.drivers.pbs import Pbs
from vgrads.drivers.pilot import parse_marks, write_exports, write_slot_script
from vgrads.drivers.shell import Shell, here_document, quote
from vgrads.drivers.slurm import Slurm
from vgrads.kernel.errors import InputError, SiteError
from vgrads.vgrid.catalog import load_catalog

ORDER = JobSubmission(
    name="vg-0123456789ab",
    slot="run-1.batch-1",
    queue="batch",
    procs=16,
    nodes=2,
    walltime_s=5430.0,
    begin_in_s=90.0,
    end_in_s=7200.0,
)
ACCESS = SiteAccess(account="storm", reservation="r1", options=("--constraint=fast disk",))


def test_slurm_gets_these_requests():
    assert Slurm().submit(ORDER, ACCESS) == (
        "sbatch --parsable --no-requeue --job-name=vg-0123456789ab --comment=run-1.batch-1 "
        "--ntasks=16 --nodes=2 "
        "--time=91 --output=/dev/null --error=/dev/null --partition=batch --begin=now+90 "
        "--deadline=now+7200 "
        "--account=storm --reservation=r1 '--constraint=fast disk'"
    )


def test_grid_engine_gets_these_requests():
    assert GridEngine().submit(ORDER, ACCESS) == (
        "qsub -terse -N vg-0123456789ab -r n -R y -w e -S /bin/sh -o /dev/null -j y -l "
        "h_rt=5430 -pe smp 16 -q batch "
        "-A storm -ar r1 '--constraint=fast disk' -a \"$(date -d '+90 seconds' +%Y%m%d%H%M.%S)\""
    )


def test_pbs_gets_these_requests():
    assert Pbs().submit(ORDER, ACCESS) == (
        "qsub -N vg-0123456789ab -r n -j oe -o /dev/null -S /bin/sh -l nodes=2:ppn=8 -l "
        "walltime=01:30:30 -q batch "
        "-A storm -W x=advres:r1 '--constraint=fast disk' -a \"$(date -d '+90 seconds' "
        '+%Y%m%d%H%M.%S)"'
    )


@pytest.mark.parametrize(
    ("slot_s", "queue_s", "window_s", "walltime_s"),
    [
        (3600.0, 86400.0, None, 3630.0),
        (86400.0, 86400.0, None, 86400.0),  # one second more would be refused
        (86380.0, 86400.0, None, 86400.0),
        (3600.0, math.inf, 3610.0, 3610.0),  # maintenance begins then
        (3600.0, 1800.0, None, 3600.0),  # the site's refusal is clearer than a shorter slot
    ],
)
def test_a_job_may_last_longer_than_its_slot_where_its_queue_permits(
    slot_s, queue_s, window_s, walltime_s
):
    spec = SlotSpec(id="a", name="a", site="s", queue="q", procs=1, duration_s=slot_s)
    site = BatchSite("s", Pbs(), Shell("s"), None, {"q": queue_s})
    other = site.make_submission(replace(spec, queue="other"), 0.0)
    assert other.walltime_s == slot_s + MARGIN_S
    if window_s is not None:
        spec = replace(spec, begin_s=100.0, end_by_s=100.0 + window_s)
    assert site.make_submission(spec, 0.0).walltime_s == walltime_s


def test_slurm_counts_whole_minutes_and_gets_a_deadline_that_they_can_keep():
    order = replace(ORDER, walltime_s=5401.0, begin_in_s=0.0, end_in_s=5401.0)
    text = Slurm().submit(order, SiteAccess())
    assert "--time=91 " in text
    assert "--deadline=now+5460" in text
    too_long = replace(order, walltime_s=3600.0, end_in_s=600.0)
    assert "--deadline=now+600 " in f"{Slurm().submit(too_long, SiteAccess())} "


def test_the_script_of_a_slot_reads_like_this():
    spec = SlotSpec(
        id="run-1.a",
        name="a",
        site="s",
        queue="q",
        procs=4,
        duration_s=60.0,
        environment={"GREETING": "it's"},
        pilot="start_workers --all",
    )
    assert write_slot_script(spec, "") == Path(__file__).with_name("golden_slot.sh").read_text()


@pytest.mark.parametrize(
    ("dialect", "golden"),
    [
        (Slurm(), "golden_nodes_slurm.sh"),
        (Pbs(), "golden_nodes_pbs.sh"),
        (GridEngine(), "golden_nodes_gridengine.sh"),
    ],
)
def test_the_script_of_a_slot_with_a_pilot_on_every_node_reads_like_this(dialect, golden):
    spec = SlotSpec(
        id="run-1.a",
        name="a",
        site="s",
        queue="q",
        procs=8,
        nodes=4,
        duration_s=60.0,
        environment={"KEY": "it's", "VGRADS_HOST_KEY": "the-key-of-the-slot"},
        pilot="start_agent --all",
        every_node=True,
    )
    script = write_slot_script(spec, "/marks", dialect.launch(spec, write_exports(spec)))
    assert script == Path(__file__).with_name(golden).read_text()
    subprocess.run(["/bin/sh", "-n"], input=script.encode(), check=True)


SRUN_REPEATS = "srun: error: n4: task 3: Exited with exit code 3"


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (["the disk is full", SRUN_REPEATS], "the disk is full"),
        ([SRUN_REPEATS, "the disk is full"], "the disk is full"),
        (["the disk is full", "", ""], "the disk is full"),
        (["srun: error: Unable to create step"], "srun: error: Unable to create step"),
        (
            ["caf\udce9 closed", SRUN_REPEATS],
            "caf\udce9 closed",
        ),  # no UTF-8: grep takes it for no text
        ([SRUN_REPEATS], ""),
        ([], ""),
    ],
)
def test_the_last_words_are_the_pilots_own(tmp_path, printed, words):
    """Slurm's launcher repeats the exit status, and whichever stream is read last comes last."""
    text = "".join(f"{line}\n" for line in printed)
    (tmp_path / "said").write_bytes(text.encode(errors="surrogateescape"))
    spec = SlotSpec(
        id="run-1.a",
        name="a",
        site="s",
        queue="q",
        procs=1,
        duration_s=60.0,
        pilot=f"cat {tmp_path}/said >&2; exit 3",
    )
    script = write_slot_script(spec, str(tmp_path / "m"))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    subprocess.run(["/bin/sh", "-s"], input=script.encode(), env=environment, check=False)
    (state,) = (tmp_path / "m").glob("*.state")
    last = state.read_text(errors="surrogateescape").splitlines()[-1]
    left = parse_marks(f"x.state:{last}")["x"]
    assert (left.code, left.message) == (3, words)


def test_pbsdsh_is_assigned_the_first_processor_of_each_host(tmp_path):
    """A host has as many lines as processors, and its place among them is its number."""
    (tmp_path / "hosts").write_text("a\na\nb\nb\nb\nc\n")
    stand_in = tmp_path / "pbsdsh"
    stand_in.write_text(f'#!/bin/sh\necho "$2 $6 $7" >>{tmp_path}/asked\n')
    stand_in.chmod(0o755)
    spec = SlotSpec(
        id="run-1.a",
        name="a",
        site="s",
        queue="q",
        procs=6,
        nodes=3,
        duration_s=60.0,
        pilot="true",
        every_node=True,
    )
    script = write_slot_script(spec, str(tmp_path / "m"), Pbs().launch(spec, write_exports(spec)))
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PBS_NODEFILE": str(tmp_path / "hosts"),
    }
    subprocess.run(["/bin/sh", "-s"], input=script.encode(), env=environment, check=True)
    assert sorted((tmp_path / "asked").read_text().splitlines()) == ["0 0 3", "2 1 3", "5 2 3"]


def test_slurm_spreads_the_processors_evenly_where_every_node_has_a_pilot():
    requested = Slurm().submit(replace(ORDER, every_node=True), SiteAccess())
    assert "--ntasks=16 --nodes=2" in requested
    assert "--ntasks-per-node=8" in requested


NASTY = st.text(
    alphabet=st.sampled_from(list("a '\"\n\t$()`\\;&|<>*?!#~=%{}-é")), min_size=1, max_size=30
)


@given(st.lists(NASTY, min_size=3, max_size=3), NASTY)
def test_no_name_account_path_or_value_reaches_a_shell_unquoted(words, value):
    """The command, run with a stand-in that prints its arguments, gets them back to the letter."""
    order = JobSubmission(
        name="vg-x", slot=words[0], queue=words[1], procs=2, nodes=1, walltime_s=90.0
    )
    access = SiteAccess(account=words[2], options=(value,))
    for dialect in (Slurm(), GridEngine(), Pbs()):
        command = dialect.submit(order, access)
        program = command.partition(" ")[0]
        script = f"{program}() {{ for one; do printf '%s\\001' \"$one\"; done; }}\n{command}\n"
        done = subprocess.run(
            ["/bin/sh", "-s"], input=script.encode(), capture_output=True, check=True
        )
        arguments = done.stdout.decode().split("\1")[:-1]
        for word in (words[1], words[2], value):
            assert any(
                argument in (word, f"--partition={word}", f"--account={word}")
                for argument in arguments
            )


@given(NASTY, NASTY)
def test_environment_and_pilot_arrive_as_they_were_written(value, text):
    spec = SlotSpec(
        id=text,
        name="a",
        site="s",
        queue="q",
        procs=1,
        duration_s=60.0,
        environment={"VALUE": value},
        pilot='printf "%s\\001%s" "$VALUE" "$VGRADS_SLOT"',
    )
    script = here_document("cat", write_slot_script(spec, "/somewhere/with 'quotes'"))
    printed = subprocess.run(
        ["/bin/sh", "-s"], input=script.encode(), capture_output=True, check=True
    )
    written = printed.stdout.decode()
    exports = written[written.index("export") : written.index("\nD=")]
    done = subprocess.run(
        ["/bin/sh", "-s"],
        input=f"{exports}\n{spec.pilot}\n".encode(),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == f"{value}\1{text}"


@given(NASTY)
def test_a_body_cannot_end_its_own_here_document(body):
    body = f"{body}\nVGRADS-END\nVGRADS-END-\nlast"
    script = here_document("cat", body)
    done = subprocess.run(["/bin/sh", "-s"], input=script.encode(), capture_output=True, check=True)
    assert done.stdout.decode() == f"{body}\n"


def test_what_no_shell_can_carry_is_refused():
    with pytest.raises(SiteError):
        quote("a\0b")
    spec = SlotSpec(
        id="x",
        name="a",
        site="s",
        queue="q",
        procs=1,
        duration_s=60.0,
        environment={"A=1; rm": "x"},
    )
    with pytest.raises(ValueError, match="environment"):
        write_slot_script(spec, "")
    long = SlotSpec(
        id="x", name="a", site="s", queue="q", procs=1, duration_s=60.0, pilot="x" * 17000
    )
    with pytest.raises(SiteError, match="16 KiB"):
        user_data(long)


@given(st.text(min_size=1))
def test_marks_are_plain_and_their_own(text):
    assert len(mark(text)) == 15
    assert mark(text).removeprefix("vg-").isalnum()
    assert mark(text) == mark(text) != mark(text + "x")


def test_marks_tell_how_a_slot_ended():
    marks = parse_marks(
        "vg-a.state:ready\nvg-b.state:ready\nvg-b.state:end 124 \nvg-c.state:ready\n"
        "vg-c.state:end 3 no space left: /x\n"
        "vg-d.state:ready\nvg-d.state:end 0 bye\nnoise\n"
    )
    assert (marks["vg-a"].ready, marks["vg-a"].outcome) == (True, None)
    assert marks["vg-b"].outcome == (SlotState.EXPIRED, "reached its end")
    assert marks["vg-c"].outcome == (
        SlotState.FAILED,
        "the pilot ended with exit code 3: no space left: /x",
    )
    assert marks["vg-d"].outcome[0] == SlotState.RELEASED


def test_slurm_lines_become_states():
    printed = (
        "7|vg-aaaaaaaaaaaa|PENDING|0:00|BeginTime|run-1.a\n"
        "8|vg-bbbbbbbbbbbb|RUNNING|1-02:03:04|None|(null)\n"
        "9|vg-cccccccccccc|NODE_FAIL|5:06|None|run-1.c|with a bar\n"
        "10|vg-d|TIMEOUT|1:00:00|TimeLimit|\nnoise\n"
    )
    jobs = Slurm().jobs(printed)
    assert [(j.job, j.state, j.reason, j.ran_s, j.slot) for j in jobs] == [
        ("7", SlotState.QUEUED, "", 0.0, "run-1.a"),
        ("8", SlotState.GRANTED, "", 93784.0, ""),
        ("9", SlotState.FAILED, "a node failed", 306.0, "run-1.c|with a bar"),
        ("10", SlotState.EXPIRED, "reached its end", 3600.0, ""),
    ]
    (past,) = Slurm().past_jobs("12|vg-e|CANCELLED by 1000|61|None|run-1.e\n")
    assert (past.state, past.ran_s) == (SlotState.FAILED, 61.0)
    assert Slurm().job_id("123;cluster\n") == "123"


@pytest.mark.parametrize(
    ("dialect", "text", "transient"),
    [
        (
            Slurm(),
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            True,
        ),
        (
            Slurm(),
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            True,
        ),
        (Slurm(), "sbatch: error: QOSMaxSubmitJobPerUserLimit", False),
        (
            Slurm(),
            (
                "sbatch: error: Batch job submission failed: Invalid account or "
                "account/partition combination"
            ),
            False,
        ),
        (GridEngine(), "error: commlib error: got select error (Connection refused)", True),
        (
            GridEngine(),
            'Unable to run job: Job was rejected because job requests unknown queue "nope"',
            False,
        ),
        (Pbs(), "Connection refused\nqsub: cannot connect to server pbs (errno=111)", True),
        (Pbs(), "qsub: would exceed queue generic's per-user limit", False),
    ],
)
def test_silence_is_reported_from_refusal(dialect, text, transient):
    assert dialect.transient(text) is transient


def test_grid_engine_errors_and_ends():
    listed = (
        "<job_info><queue_info><job_list "
        "state='running'><JB_job_number>1</JB_job_number><JB_name>vg-a</JB_name>"
        "<state>dr</state></job_list></queue_info><job_info><job_list "
        "state='pending'><JB_job_number>2</JB_job_number>"
        "<JB_name>vg-b</JB_name><state>Eqw</state></job_list></job_info></job_info>"
    )
    first, second = GridEngine().jobs(listed)
    assert (first.state, first.ending) == (SlotState.GRANTED, True)
    assert (second.state, "qstat -j" in second.reason) == (SlotState.FAILED, True)
    block = "====\njobname vg-a\njobnumber 1\nfailed {}\nexit_status {}\n"
    text = block.format("37  : qmaster enforced h_rt limit", 137) + block.format(
        "100 : assumedly after job", 137
    )
    text += block.format("0    ", "0                   ") + block.format("0    ", "3   ")
    assert [j.state.name for j in GridEngine().past_jobs(text)] == [
        "EXPIRED",
        "FAILED",
        "RELEASED",
        "FAILED",
    ]
    with pytest.raises(SiteError) as broken:
        GridEngine().jobs("<job_info>")
    assert broken.value.transient


def test_pbs_json_and_plain_say_the_same():
    plain = (
        "Job Id: 12.server\n    Job_Name = vg-aaaaaaaaaaaa\n    job_state = C\n    "
        "Exit_status = 271\n"
        "    Variable_List = PBS_O_HOME=/home/me,\n\tPBS_O_PATH=/usr/bin\n    "
        "resources_used.walltime = 00:01:05\n\n"
        "Job Id: 13.server\n    Job_Name = vg-bbbbbbbbbbbb\n    job_state = H\n"
    )
    json_text = (
        '{"timestamp": 1, "Jobs": {"12.server": {"Job_Name": "vg-aaaaaaaaaaaa", '
        '"job_state": "F", "Exit_status": 271,'
        '"resources_used": {"walltime": "00:01:05"}}, "13.server": {"Job_Name": '
        '"vg-bbbbbbbbbbbb", "job_state": "H"}}}'
    )
    for text in (plain, json_text):
        ended, job_report = Pbs().jobs(text)
        assert (ended.job, ended.state, ended.reason, ended.ran_s) == (
            "12.server",
            SlotState.FAILED,
            "killed by signal 15",
            65.0,
        )
        assert (job_report.name, job_report.state) == ("vg-bbbbbbbbbbbb", SlotState.QUEUED)
    with pytest.raises(SiteError):
        Pbs().jobs('{"Jobs": {"1": {"Job_Name": "a"b"}}}')


def test_prices_count_started_units_of_every_node():
    price = NodePrice(usd_per_hour=0.68, spot_usd_per_hour=0.2, billing_s=3600.0)
    assert price.cost_usd(2, 3601.0, spot=False) == pytest.approx(2.72)
    assert price.cost_usd(2, 3600.0, spot=True) == pytest.approx(0.4)


def test_shells_say_what_is_missing_and_end_what_hangs():
    shell = Shell("here", SiteAccess(timeout_s=0.5))
    with pytest.raises(SiteError, match=r"access\.host") as gone:
        shell.command("no-such-command-anywhere")
    assert not gone.value.transient
    with pytest.raises(SiteError) as late:
        shell.run("sleep 30 & wait")
    assert late.value.transient
    assert shell.run("echo a; echo b >&2; exit 3").code == 3


SITE = '[[site]]\nname = "s"\nkind = "{kind}"\nprocs = 8\ndriver = "{driver}"\n{access}\n'


@pytest.mark.parametrize(
    ("kind", "driver", "access", "text"),
    [
        ("batch", "slurm", "[site.access]\nhosst = 'x'\n[[site.queue]]\nname='q'", "hosst"),
        (
            "batch",
            "slurm",
            "[site.access]\nhost = '-oProxyCommand=x'\n[[site.queue]]\nname='q'",
            "host",
        ),
        (
            "batch",
            "slurm",
            "[site.access]\naccount = '--uid=0'\n[[site.queue]]\nname='q'",
            "account",
        ),
        ("cloud", "slurm", "", "driver 'slurm' is for batch"),
        ("batch", "ec2", "[[site.queue]]\nname='q'", "driver 'ec2' is for cloud sites"),
        ("cloud", "ec2", "[site.access]\nprice_currency = 'EUR'", "price_currency"),
        ("cloud", "ec2", "[site.access]\nspend_limit_usd = -1", "spend_limit_usd"),
        ("cloud", "ec2", "[site.access]\nendpoint = 'ftp://x'", "endpoint"),
        ("cloud", "ec2", "[site.access]\ntimeout = 0", "timeout"),
    ],
)
def test_faults_in_how_a_site_is_reached_are_named(kind, driver, access, text, write):
    path = write("sites.toml", SITE.format(kind=kind, driver=driver, access=access))
    with pytest.raises(InputError, match=text):
        load_catalog(path)


def test_a_site_without_a_python_for_agents_says_so(tmp_path):
    site = BatchSite("here", Slurm(), Shell("here", SiteAccess()))
    assert site.python_problem((sys.executable,)) == ""
    assert site.python_problem(("no-such-python", sys.executable)) == ""
    assert "no no-such-python there" in site.python_problem(("no-such-python",))
    old = tmp_path / "old python"
    old.write_text("#!/bin/sh\necho 3 6\n")
    old.chmod(0o755)
    assert "Python 3.6 there is older than 3.8" in site.python_problem((str(old),))
