"""Run Snakemake's jobs in slots that vgrads plans and holds: ``snakemake --executor vgrads``.

Snakemake finds this module by its name. The whole graph is submitted at the start, so that the
deadline can be promised; each job is released to its slot when Snakemake reports it ready.
"""

from dataclasses import dataclass, field
from typing import Any

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from snakemake_executor_plugin_vgrads.versions import mismatch

if mismatch():
    from snakemake_executor_plugin_vgrads.versions import Executor
else:
    from snakemake_executor_plugin_vgrads.executor import Executor  # type: ignore[assignment]

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,  # they are in a file that only the user can read
    auto_deploy_default_storage_provider=False,
)


def _config(default: Any, words: str, env_var: bool = False) -> Any:
    return field(default=default, metadata={"help": words, "env_var": env_var, "required": False})


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Command-line options ``--vgrads-…``."""

    deadline: str = _config(
        "",
        (
            "Deadline of the run, e.g. 4h, or a time with time zone. Default: the earliest "
            "deadline that can be promised."
        ),
    )
    probability: float = _config(0.9, "Requested probability of the promise.")
    sites: str = _config(
        "",
        (
            "Site description file, if vgrads is started for this run. Default: the sites of its "
            "database."
        ),
    )
    url: str = _config(
        "",
        "URL of a running vgrads service. Default: a service is started for this run, on this "
        "machine.",
    )
    token: str = _config("", "Token for that service.", env_var=True)
    plan_only: bool = _config(False, "Print the promise and exit.")
    respawn: bool = _config(
        False,
        (
            "Start every job with a Snakemake process of its own. Default: plain shell rules are "
            "started directly."
        ),
    )
    set: str = _config(
        "",
        (
            "Name of a set that contains this run as one workflow, together with other runs at "
            "the same service."
        ),
    )
    of: int = _config(0, "Number of runs of that set.")
    fraction: str = _config(
        "", "Share of the set that must be done by the deadline, e.g. 3/4. Default: all."
    )
    wait: str = _config("10m", "Time to wait for the other runs of the set.")
