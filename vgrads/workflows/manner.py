"""How a task runs, beside what it runs: environment, setup, conda or venv, folder, container, what
follows failures.

Said per set, per workflow and per task; :meth:`Manner.over` lays the more special over the more
general.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ENGINES = ("apptainer", "singularity", "docker", "podman")
"""What containers are run by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """An image that commands run in. ``engine``: the only one that will do, empty: any;
    ``options``: more words for it.

    An empty image is none, said to take back what is said more generally.
    """

    image: str
    engine: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """What follows when a command exits with one of ``exits`` (none named: with any that it chose
    itself).

    It is tried ``retries`` times more; each failure multiplies its memory and its expected run
    time.
    """

    exits: tuple[int, ...] = ()
    retries: int = 1
    memory: float = 1.0
    time: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a task runs. None: nothing is said; empty: what is said more generally is taken back.

    ``setup``: shell text before the command, entry by entry; ``conda``: an environment by name or
    prefix; ``venv``: its folder; ``workdir``: where the command runs instead of in the task's own
    folder.
    """

    env: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    workdir: str | None = None
    container: Container | None = None
    errors: tuple[ErrorRule, ...] = ()

    def over(self, general: Manner) -> Manner:
        """This laid over what is said more generally: lines are added, the rest replaces what is
        there."""
        if self == PLAIN:
            return general
        activates = self.conda is not None or self.venv is not None
        return Manner(
            env=tuple({**dict(general.env), **dict(self.env)}.items()),
            setup=(*general.setup, *self.setup),
            conda=self.conda if activates else general.conda,
            venv=self.venv if activates else general.venv,
            workdir=general.workdir if self.workdir is None else self.workdir,
            container=general.container if self.container is None else self.container,
            errors=(*self.errors, *general.errors),
        )

    @property
    def boxed(self) -> Container | None:
        """The container, where there is one."""
        return self.container if self.container and self.container.image else None

    def rule_for(self, code: int | None, ended: int | None) -> ErrorRule | None:
        """The first rule for an end; ``code``: the exit code that the command chose, ``ended``: as
        a shell tells it, 128 and more for signals."""
        for rule in self.errors:
            if ended in rule.exits if rule.exits else code is not None:
                return rule
        return None


PLAIN = Manner()
"""Nothing is said."""


def with_env(manner: Manner, env: Mapping[str, str]) -> Manner:
    """The same with an environment below its own."""
    return manner.over(Manner(env=tuple(env.items()))) if env else manner
