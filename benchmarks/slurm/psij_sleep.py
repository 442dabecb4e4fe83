"""Jobs of PSI/J that sleep: ``python psij_sleep.py FOLDER COUNT SECONDS``. Submits them all,
then waits for their ends."""

import sys
from datetime import timedelta
from pathlib import Path

from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
from psij.executors.batch.slurm import SlurmExecutorConfig


def main(folder: Path, count: int, sleep_s: str) -> None:
    """Run the jobs; exit with an error unless all of them completed."""
    config = SlurmExecutorConfig(work_directory=folder / "psij", queue_polling_interval=10)
    executor = JobExecutor.get_instance("slurm", config=config)
    spec = JobSpec(
        executable="/bin/sleep",
        arguments=[sleep_s],
        directory=folder,
        resources=ResourceSpecV1(node_count=1, processes_per_node=1, cpu_cores_per_process=1),
        attributes=JobAttributes(duration=timedelta(minutes=5), queue_name="vgrads"),
        launcher="single",
    )
    jobs = [Job(spec) for _ in range(count)]
    for job in jobs:
        executor.submit(job)
    states = {(status := job.wait()) and status.state.name for job in jobs}
    sys.exit(0 if states == {"COMPLETED"} else f"the jobs ended {states}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
