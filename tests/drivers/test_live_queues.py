"""The queue as each batch system prints it: every task of an array waits, held jobs do not."""

import json

import pytest

from vgrads.drivers.gridengine import GridEngine
from vgrads.drivers.pbs import Pbs
from vgrads.drivers.slurm import Slurm

SQUEUE = """1700000000
batch|ann|RUNNING|4|1:00:00|30:00|1699990000|None
batch|ann|PENDING|1|10:00|10:00|1699999000|JobArrayTaskLimit
batch|ann|PENDING|1|10:00|10:00|1699999000|Priority
batch|bob|PENDING|2|30:00|30:00|1699999000|Dependency
batch|bob|PENDING|2|30:00|30:00|1699999000|DependencyNeverSatisfied
batch|bob|PENDING|1|50:00|50:00|1699999000|JobHeldUser
batch|bob|PENDING|1|50:00|50:00|1699999000|JobHeldAdmin
batch|bob|PENDING|1|50:00|50:00|1699999000|BeginTime
"""


def job_list(number, state, tasks, slots=1, begun=""):
    began = f"<JAT_start_time>{begun}</JAT_start_time>" if begun else ""
    return (
        f"<job_list><JB_job_number>{number}</JB_job_number><JB_owner>ann</JB_owner>"
        f"<state>{state}</state><JB_submission_time>2024-07-22T10:00:00</JB_submission_time>"
        f"{began}<slots>{slots}</slots>{f'<tasks>{tasks}</tasks>' if tasks else ''}"
        '<hard_request name="h_rt">600</hard_request><hard_req_queue>all.q</hard_req_queue>'
        "</job_list>"
    )


QSTAT_XML = (
    "2024-07-22T10:10:00\n<job_info><job_info>"
    + job_list(42, "qw", "2-1000:1")
    + job_list(42, "r", "1", begun="2024-07-22T10:05:00")
    + job_list(43, "hqw", "", 8)
    + job_list(44, "qw", "1,3,5-9:2")
    + job_list(45, "Eqw", "")
    + "</job_info></job_info>"
)
LIST = {"walltime": "00:10:00", "ncpus": 1, "select": "1:ncpus=4"}
QSTAT_JSON = "1700000000\n" + json.dumps(
    {
        "Jobs": {
            "7[].srv": {
                "job_state": "B",
                "queue": "q",
                "Job_Owner": "ann@h",
                "array_indices_remaining": "2-1000",
                "array_state_count": "Queued:999 Running:1 Exiting:0 Expired:0 ",
                "Resource_List": LIST,
            },
            "8.srv": {"job_state": "H", "queue": "q", "Resource_List": LIST},
            "9.srv": {"job_state": "W", "queue": "q", "Resource_List": LIST},
            "10.srv": {"job_state": "Q", "queue": "q", "Resource_List": LIST},
        }
    }
)
QSTAT_TASKS = """1700000000
Job Id: 7[].srv
    job_state = B
    queue = q
    array_indices_remaining = 2-3
Job Id: 7[1].srv
    job_state = R
    queue = q
    Resource_List.nodes = 2:ppn=8
    Resource_List.walltime = 01:00:00
Job Id: 7[2].srv
    job_state = Q
    queue = q
Job Id: 7[3].srv
    job_state = X
    queue = q
"""


@pytest.mark.parametrize(
    ("dialect", "printed", "waiting", "procs", "running", "ineligible"),
    [
        (Slurm(), SQUEUE, 2, 2, 1, 5),
        (GridEngine(), QSTAT_XML, 999 + 5, 999 + 5, 1, 2),
        (Pbs(), QSTAT_JSON, 999 + 1, 4 * 1000, 1, 2),
        (Pbs(), QSTAT_TASKS, 1, 1, 1, 0),
    ],
    ids=["squeue --array", "qstat -xml", "qstat -f -F json", "qstat -t -f"],
)
def test_tasks_of_arrays_wait_and_held_jobs_do_not(
    dialect, printed, waiting, procs, running, ineligible
):
    jobs = [job for job in dialect.listed_jobs(printed) if job.eligible]
    assert len([job for job in jobs if job.left_s is None]) == waiting
    assert sum(job.procs for job in jobs if job.left_s is None) == procs
    assert len([job for job in jobs if job.left_s is not None]) == running
    assert sum(not job.eligible for job in dialect.listed_jobs(printed)) == ineligible
