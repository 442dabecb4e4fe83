"""Snakemake's jobs in slots that vgrads plans and holds: ``snakemake --executor vgrads``.

Snakemake finds this module by its name. The whole graph is handed over at the start, so that the
deadline can be promised; each job is released to its slot when Snakemake says that it is ready.
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


def _setting(default: Any, words: str, env_var: bool = False) -> Any:
    return field(default=default, metadata={"help": words, "env_var": env_var, "required": False})


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options ``--vgrads-…`` of the command line."""

    deadline: str = _setting(
        "",
        (
            "When all of it must be done: as 4h, or an instant with zone. Default: the soonest "
            "that can be promised."
        ),
    )
    probability: float = _setting(0.9, "How sure the promise must be.")
    sites: str = _setting(
        "",
        (
            "File of the sites, if vgrads is to be started for this run. Default: those of its "
            "database."
        ),
    )
    url: str = _setting(
        "", "Where a vgrads service runs. Default: one is started for this run, on this machine."
    )
    token: str = _setting("", "What opens that service.", env_var=True)
    plan_only: bool = _setting(False, "Say what would be promised, and end.")
    respawn: bool = _setting(
        False,
        (
            "Have every job begun by a Snakemake of its own; without it, plain shell rules are "
            "begun directly."
        ),
    )
    set: str = _setting(
        "",
        (
            "Name of a set that this run is one workflow of, together with other runs at the "
            "same service."
        ),
    )
    of: int = _setting(0, "How many runs that set has.")
    fraction: str = _setting(
        "", "How much of the set must be done by the deadline, as 3/4. Default: all."
    )
    wait: str = _setting("10m", "How long the others of the set are waited for.")
