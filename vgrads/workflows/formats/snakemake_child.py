"""Print the jobs of a Snakefile, as Snakemake determines them, as JSON. Runs in Snakemake's own
interpreter, as a file.

``python -P snakemake_child.py REQUEST`` executes Snakemake up to the point where
jobs are passed to an executor, with an executor that records them and runs nothing; so threads,
resources, groups and local rules are those of ``snakemake --executor vgrads``. It works in the
folder where it is started, in which Snakemake keeps its ``.snakemake``. The request is JSON:
``snakefile``, ``configfiles``, ``config`` (``NAME=VALUE``), ``targets``, and ``cores``, to which
threads are limited, or null. One line of JSON is written to standard output, ``{"tasks": …}`` or
``{"error": …}``; output of the Snakefile itself goes to standard error.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

_MANY = 2**31  # more jobs at once than exist: none is held back
_NAME = "vgrads-ask"


class _GraphComplete(BaseException):
    """The graph is complete; not derived from Exception, so that no handler treats it as an
    error."""


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Return the tasks of a Snakefile, or Snakemake's error message."""
    from snakemake import api, exceptions  # noqa: PLC0415 a missing Snakemake is told by its ImportError
    from snakemake.settings import types as settings  # noqa: PLC0415

    tasks: list[dict[str, Any]] = []
    _register(tasks)
    quiet = settings.OutputSettings(quiet={settings.Quietness.ALL})
    workflow = None
    with api.SnakemakeApi(quiet) as snakemake:
        try:
            workflow = snakemake.workflow(
                resource_settings=settings.ResourceSettings(
                    nodes=_MANY, max_threads=request["cores"]
                ),
                config_settings=settings.ConfigSettings(
                    configfiles=[Path(file) for file in request["configfiles"]],
                    config=_config(request["config"]),
                ),
                snakefile=Path(request["snakefile"]),
            )
            targets = settings.DAGSettings(targets=set(request["targets"]))
            workflow.dag(dag_settings=targets).execute_workflow(
                executor=_NAME, execution_settings=settings.ExecutionSettings(lock=False)
            )
        except _GraphComplete:
            return {"tasks": tasks}
        except Exception as error:
            begun = getattr(
                workflow, "_workflow_store", None
            )  # it has the line numbers of the Snakefile
            lines = getattr(begun, "linemaps", {})
            return {"error": exceptions.format_exception_to_string(error, lines)}
    return {"tasks": tasks}


def _config(values: list[str]) -> dict[str, Any]:
    """Return the configuration of ``NAME=VALUE``, as Snakemake's command reads it."""
    if not values:
        return {}
    from snakemake.cli import parse_config  # noqa: PLC0415 it takes long

    return dict(parse_config(values))


def _register(tasks: list[dict[str, Any]]) -> None:
    """Register an executor that puts its jobs into ``tasks`` as soon as the DAG is complete, and
    ends."""
    from snakemake_interface_executor_plugins.executors.base import AbstractExecutor  # noqa: PLC0415
    from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry  # noqa: PLC0415
    from snakemake_interface_executor_plugins.settings import CommonSettings  # noqa: PLC0415

    make_tasks = runpy.run_path(str(Path(__file__).with_name("snakemake_jobs.py")))["make_tasks"]

    def begin(_: object, workflow: Any, _logger: object) -> None:
        tasks.extend(make_tasks(workflow.dag))
        raise _GraphComplete

    plugin: Any = types.ModuleType(_NAME)
    nothing = dict.fromkeys(AbstractExecutor.__abstractmethods__)  # it ends before any is called
    plugin.Executor = type("Executor", (AbstractExecutor,), {**nothing, "__init__": begin})
    plugin.common_settings = CommonSettings(
        non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False
    )
    ExecutorPluginRegistry().register_plugin(_NAME, plugin)


if __name__ == "__main__":
    # whatever a Snakefile prints must not mix with the answer
    output = os.dup(1)
    os.dup2(2, 1)
    answer = ask(json.loads(sys.argv[1]))
    with os.fdopen(output, "w") as out:
        json.dump(answer, out)
