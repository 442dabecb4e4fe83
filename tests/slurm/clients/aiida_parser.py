"""Slurm's plugin of AiiDA, submitting a script and reading the replies: ``python aiida_parser.py``
in a folder of its own. Prints what it has read, as JSON."""

import json
import subprocess
import time
from pathlib import Path

from aiida.common.datastructures import CodeRunMode
from aiida.schedulers.datastructures import JobTemplate, JobTemplateCodeInfo
from aiida.schedulers.plugins.slurm import SlurmScheduler

GO = Path("go")
"""Lets a job that waits for it end."""


def run(command):
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def template(scheduler, *words):
    code = JobTemplateCodeInfo()
    code.cmdline_params, code.use_double_quotes = list(words), [False, False]
    job = JobTemplate()
    job.shebang, job.job_name, job.queue_name = "#!/bin/bash", "aiida-1", "vgrads"
    job.codes_info, job.codes_run_mode = [code], CodeRunMode.SERIAL
    job.max_wallclock_seconds, job.max_memory_kb = 600, 102_400
    job.sched_output_path, job.sched_error_path = "_scheduler.out", "_scheduler.err"
    job.submit_as_hold = job.rerunnable = False
    job.job_resource = scheduler.create_job_resource(num_machines=1, num_mpiprocs_per_machine=1)
    return job


def read(scheduler, job):
    """The job, as the plugin reads it from squeue; None where squeue does not list it."""
    command = scheduler._get_joblist_command(jobs=[job])
    listed = scheduler._parse_joblist_output(*run(command))
    return next((info for info in listed if info.job_id == job), None)


def main():
    scheduler = SlurmScheduler()
    wait = f"until test -e {GO}; do sleep 0.1; done"
    script = scheduler.get_submit_script(template(scheduler, "sh", "-c", wait))
    Path("_aiidasubmit.sh").write_text(script)
    submit = scheduler._get_submit_command("_aiidasubmit.sh")
    job = scheduler._parse_submit_output(*run(submit))
    states, info, end_s = [], None, time.monotonic() + 60
    while time.monotonic() < end_s and "done" not in states:
        latest = read(scheduler, job)
        state = latest.job_state.value if latest else "done"
        info = latest if latest and state == "running" else info
        states += [state] if states[-1:] != [state] else []
        if state == "running":
            GO.touch()
        time.sleep(0.2)
    GO.unlink(missing_ok=True)  # the next job waits until it is killed
    code, out, err = run(scheduler._get_detailed_job_info_command(job))
    other = scheduler._parse_submit_output(*run(submit))
    killed = scheduler._parse_kill_output(*run(scheduler._get_kill_command(other)))
    print(
        json.dumps(
            {
                "job": job,
                "states": states,
                "running": {
                    "title": info.title,
                    "queue": info.queue_name,
                    "machines": info.num_machines,
                    "limit_s": info.requested_wallclock_time_seconds,
                    "owner": info.job_owner,
                    "submitted": info.submission_time.isoformat(),
                },
                "accounting": [code, out.splitlines(), err],
                "killed": killed,
            }
        )
    )


if __name__ == "__main__":
    main()
