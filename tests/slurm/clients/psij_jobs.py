"""Jobs of PSI/J on its Slurm executor: ``python psij_jobs.py FOLDER COUNT``. Prints the final
states and the ids that Slurm assigned, as JSON."""

import json
import sys
from datetime import timedelta
from pathlib import Path

from psij import Job, JobAttributes, JobExecutor, JobSpec, JobState, ResourceSpecV1
from psij.executors.batch.slurm import SlurmExecutorConfig


def spec(folder, name, *words):
    return JobSpec(
        executable=words[0],
        arguments=list(words[1:]),
        directory=folder,
        stdout_path=folder / f"{name}.out",
        stderr_path=folder / f"{name}.err",
        environment={"GREETING": "hello"},
        resources=ResourceSpecV1(node_count=1, processes_per_node=1, cpu_cores_per_process=1),
        attributes=JobAttributes(duration=timedelta(minutes=5), queue_name="vgrads"),
        launcher="single",
    )


def main(folder, count):
    config = SlurmExecutorConfig(
        work_directory=folder / "psij", initial_queue_polling_delay=1, queue_polling_interval=1
    )
    executor = JobExecutor.get_instance("slurm", config=config)
    echo = "echo $GREETING $SLURM_CPUS_PER_TASK"
    specs = {f"job{n}": spec(folder, f"job{n}", "/bin/sh", "-c", echo) for n in range(count)}
    specs["bad"] = spec(folder, "bad", "/bin/sh", "-c", "exit 3")
    specs["long"] = spec(folder, "long", "/bin/sleep", "600")
    jobs = {name: Job(spec) for name, spec in specs.items()}
    for job in jobs.values():
        executor.submit(job)
    jobs["long"].wait(timedelta(minutes=2), target_states=[JobState.ACTIVE])
    jobs["long"].cancel()
    ends = {name: job.wait(timedelta(minutes=2)) for name, job in jobs.items()}
    print(
        json.dumps(
            {
                "states": {name: end and end.state.name for name, end in ends.items()},
                "exit_code": ends["bad"] and ends["bad"].exit_code,
                "ids": [job.native_id for job in jobs.values()],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
