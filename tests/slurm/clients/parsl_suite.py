"""A configuration for Parsl's own tests: ``pytest --config parsl_suite.py``."""

from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider


def fresh_config():
    provider = SlurmProvider(
        partition="vgrads",
        exclusive=False,
        cores_per_node=4,
        init_blocks=1,
        min_blocks=1,
        max_blocks=1,
        walltime="00:30:00",
        cmd_timeout=60,
        launcher=SrunLauncher(),
    )
    executor = HighThroughputExecutor(
        label="slurm", address="127.0.0.1", max_workers_per_node=4, provider=provider
    )
    return Config(executors=[executor], usage_tracking=0)
