"""Ask Snakemake what a Snakefile would run, and print it as JSON. Runs in Snakemake's own
interpreter, as a file.

``python -P snakemake_child.py SNAKEFILE [CONFIGFILE]`` goes Snakemake's way up to where jobs are
handed to an executor, with an executor that writes them down and runs nothing; so threads,
resources, groups and local rules are what ``snakemake --executor vgrads`` would get. Works in the
folder where it is started, in which Snakemake keeps its ``.snakemake``. One line of JSON goes to
the standard output, ``{"tasks": …}`` or ``{"error": …}``; whatever the Snakefile itself prints goes
to the standard error.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

_MANY = 2**31  # more jobs at once than there are: nothing is held back
_NAME = "vgrads-ask"


class _Seen(BaseException):
    """All that was asked is known; no Exception, so that nobody on the way takes it for an
    error."""


def ask(snakefile: str, config: str | None) -> dict[str, Any]:
    """The tasks of a Snakefile, or what Snakemake says against it."""
    from snakemake import api, exceptions  # noqa: PLC0415 a missing Snakemake is told by its ImportError
    from snakemake.settings import types as settings  # noqa: PLC0415

    tasks: list[dict[str, Any]] = []
    _register(tasks)
    quiet = settings.OutputSettings(quiet={settings.Quietness.ALL})
    workflow = None
    with api.SnakemakeApi(quiet) as snakemake:
        try:
            workflow = snakemake.workflow(
                resource_settings=settings.ResourceSettings(nodes=_MANY),
                config_settings=settings.ConfigSettings(
                    configfiles=[Path(config)] if config else []
                ),
                snakefile=Path(snakefile),
            )
            workflow.dag().execute_workflow(
                executor=_NAME, execution_settings=settings.ExecutionSettings(lock=False)
            )
        except _Seen:
            return {"tasks": tasks}
        except Exception as error:
            begun = getattr(
                workflow, "_workflow_store", None
            )  # it knows the lines of the Snakefile
            lines = getattr(begun, "linemaps", {})
            return {"error": exceptions.format_exception_to_string(error, lines)}
    return {"tasks": tasks}


def _register(tasks: list[dict[str, Any]]) -> None:
    """Make an executor known that puts its jobs into ``tasks`` as soon as the DAG is there, and
    ends."""
    from snakemake_interface_executor_plugins.executors.base import AbstractExecutor  # noqa: PLC0415
    from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry  # noqa: PLC0415
    from snakemake_interface_executor_plugins.settings import CommonSettings  # noqa: PLC0415

    tasks_of = runpy.run_path(str(Path(__file__).with_name("snakemake_jobs.py")))["tasks_of"]

    def begin(_: object, workflow: Any, _logger: object) -> None:
        tasks.extend(tasks_of(workflow.dag))
        raise _Seen

    plugin: Any = types.ModuleType(_NAME)
    nothing = dict.fromkeys(AbstractExecutor.__abstractmethods__)  # it ends before any is called
    plugin.Executor = type("Executor", (AbstractExecutor,), {**nothing, "__init__": begin})
    plugin.common_settings = CommonSettings(
        non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False
    )
    ExecutorPluginRegistry().register_plugin(_NAME, plugin)


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)
    told = ask(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    with os.fdopen(answer, "w") as out:
        json.dump(told, out)
