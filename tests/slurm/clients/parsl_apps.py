"""Apps of Parsl on its HTEX over its SlurmProvider: ``python parsl_apps.py FOLDER COUNT``. Prints
the results and where they were computed, as JSON."""

import json
import sys

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider


@parsl.python_app
def square(number):
    import os  # noqa: PLC0415  # in the worker

    return number * number, os.environ["SLURM_JOB_ID"]


@parsl.bash_app
def write(text, stdout=None):
    return f"echo {text}"


def main(folder, count):
    provider = SlurmProvider(
        partition="vgrads",
        exclusive=False,
        cores_per_node=1,
        walltime="00:10:00",
        init_blocks=1,
        max_blocks=2,
        launcher=SrunLauncher(),
    )
    executor = HighThroughputExecutor(
        label="slurm",
        address="127.0.0.1",
        max_workers_per_node=2,
        provider=provider,
        working_dir=folder,
        encrypted=False,
    )
    config = Config(executors=[executor], run_dir=f"{folder}/runinfo", usage_tracking=0)
    with parsl.load(config):
        pairs = [future.result(120) for future in [square(n) for n in range(count)]]
        write("a bash app", stdout=f"{folder}/text").result(120)
    print(json.dumps({"squares": [n for n, _ in pairs], "jobs": sorted({j for _, j in pairs})}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
