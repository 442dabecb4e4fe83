"""Jobs for tests."""

from vgrads.slurm.job import Job, JobState

NOW_S = 1_795_708_800.0
"""An instant of November 2026."""


def job(number=1, state=JobState.PENDING, **fields):
    """A job that was submitted 100 s before NOW_S and, once it runs, started 60 s before."""
    values = {
        "id": number,
        "name": "work",
        "user": "ann",
        "uid": 1000,
        "state": state,
        "submit_s": NOW_S - 100,
        "eligible_s": NOW_S - 100,
        "limit_s": 600.0,
        "memory_mib": 100,
        "folder": "/home/ann",
        "stdout": f"/home/ann/slurm-{number}.out",
    }
    if not state.is_pending:
        values |= {"start_s": NOW_S - 60, "node_list": "n1"}
    if state.is_terminal:
        values["end_s"] = NOW_S - 20
    return Job(**values | fields)
