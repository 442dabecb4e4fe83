"""Environment of a task: variables, setup, conda or venv, folder, container, rules for failures.

Stated per set, per workflow and per task; :meth:`TaskEnvironment.over` combines the more special
with the more general.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ENGINES = ("apptainer", "singularity", "docker", "podman")
"""Container engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """An image in which commands run. ``engine``: the only permitted one, empty: any; ``options``:
    further words for it.

    An empty image means no container, and overrides a more general one.
    """

    image: str
    engine: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """Rule for a command that exits with one of ``exits`` (if none are named: with any exit code of
    the command).

    It is retried ``retries`` times; each failure multiplies its memory and its expected run time.
    """

    exits: tuple[int, ...] = ()
    retries: int = 1
    memory: float = 1.0
    time: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """Environment of a task. None: not stated; empty: overrides a more general value.

    ``setup``: shell text before the command, entry by entry; ``conda``: an environment by name or
    prefix; ``venv``: its folder; ``workdir``: the folder where the command runs instead of the
    task's own.
    """

    env: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    workdir: str | None = None
    container: Container | None = None
    errors: tuple[ErrorRule, ...] = ()

    def over(self, general: TaskEnvironment) -> TaskEnvironment:
        """Return this combined with a more general one: lists are added, other values replace those
        of the general one."""
        if self == PLAIN:
            return general
        # conda and venv are alternatives: either of them replaces both of the general one
        activates = self.conda is not None or self.venv is not None
        return TaskEnvironment(
            env=tuple({**dict(general.env), **dict(self.env)}.items()),
            setup=(*general.setup, *self.setup),
            conda=self.conda if activates else general.conda,
            venv=self.venv if activates else general.venv,
            workdir=general.workdir if self.workdir is None else self.workdir,
            container=general.container if self.container is None else self.container,
            # own rules come first, because the first that fits counts
            errors=(*self.errors, *general.errors),
        )

    @property
    def boxed(self) -> Container | None:
        """The container, if there is one."""
        return self.container if self.container and self.container.image else None

    def rule_for(self, code: int | None, ended: int | None) -> ErrorRule | None:
        """Return the first rule for an end; ``code``: the exit code of the command, ``ended``: as a
        shell reports it, 128 and more for signals."""
        for rule in self.errors:
            if ended in rule.exits if rule.exits else code is not None:
                return rule
        return None


PLAIN = TaskEnvironment()
"""An environment without any statement."""


def with_env(environment: TaskEnvironment, env: Mapping[str, str]) -> TaskEnvironment:
    """Return the same with a more general environment added."""
    return environment.over(TaskEnvironment(env=tuple(env.items()))) if env else environment
