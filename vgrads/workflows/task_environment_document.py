"""Documents of task environments: the same fields for a set, a workflow and a task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from vgrads.kernel.documents import Document, as_value_error
from vgrads.workflows.dag import check_text
from vgrads.workflows.task_environment import Container, ErrorRule, TaskEnvironment

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_RETRIES = 100
_LONGEST = 4096
Word = Annotated[str, Field(pattern=r"^$|^[^-\s\x00-\x1f][^\s\x00-\x1f]*$", max_length=1000)]
_Factor = Annotated[float, Field(ge=1, le=100)]


class ContainerDocument(Document):
    """An image and its options."""

    image: Word
    engine: Literal["apptainer", "singularity", "docker", "podman"] | None = None
    options: tuple[str, ...] = ()


class ErrorDocument(Document):
    """Rule for certain exit codes; ``any``: those of the command itself."""

    exit: Literal["any"] | int | tuple[int, ...] = "any"
    retries: Annotated[int, Field(ge=0, le=_MOST_RETRIES)] = 1
    memory: _Factor = 1.0
    time: _Factor = 1.0

    @field_validator("exit")
    @classmethod
    def _codes(cls, value: str | int | tuple[int, ...]) -> str | int | tuple[int, ...]:
        codes = (value,) if isinstance(value, int) else () if value == "any" else value
        if codes == () and value != "any":
            raise ValueError("name at least one exit code, or any")
        for code in codes:
            if not isinstance(code, int) or not 0 <= code <= 255:
                raise ValueError(f"{code} is not an exit code (0 to 255)")
        return value


class TaskEnvironmentDocument(Document):
    """Environment of tasks; the more special adds to the more general, or replaces it."""

    env: Mapping[str, str] = {}
    setup: str | tuple[str, ...] = ()
    conda: Annotated[Word, Field(description="an environment, by name or prefix")] | None = None
    venv: str | None = None
    workdir: str | None = None
    container: Word | ContainerDocument | None = None
    errors: tuple[ErrorDocument, ...] = ()

    @field_validator("env")
    @classmethod
    def _env(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name) or name.startswith("VGRADS_"):
                raise ValueError(f"'{name}' cannot be set for tasks")
            as_value_error(lambda text=text: check_text(text))  # type: ignore[misc]
        return value

    @field_validator("setup")
    @classmethod
    def _setup(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for text in (value,) if isinstance(value, str) else value:
            as_value_error(lambda text=text: check_text(text))  # type: ignore[misc]
        return value

    @field_validator("venv", "workdir")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is None or not value:
            return value
        as_value_error(lambda: check_text(value))
        if not value.startswith("/") or "\n" in value or len(value) > _LONGEST:
            raise ValueError(f"'{value[:80]}' is not an absolute path")
        return value

    @model_validator(mode="after")
    def _check_activation(self) -> TaskEnvironmentDocument:
        if self.conda and self.venv:
            raise ValueError("give 'conda' or 'venv', not both")
        return self

    @property
    def environment(self) -> TaskEnvironment:
        """Return the value of the document."""
        return TaskEnvironment(
            env=tuple(self.env.items()),
            setup=(self.setup,) if isinstance(self.setup, str) else self.setup,
            conda=self.conda,
            venv=self.venv,
            workdir=self.workdir,
            container=_read_container(self.container),
            errors=tuple(map(_read_rule, self.errors)),
        )


FIELDS = frozenset(TaskEnvironmentDocument.model_fields)


def _read_container(written: str | ContainerDocument | None) -> Container | None:
    if written is None or isinstance(written, str):
        return None if written is None else Container(image=written)
    return Container(image=written.image, engine=written.engine or "", options=written.options)


def _read_rule(written: ErrorDocument) -> ErrorRule:
    codes = (written.exit,) if isinstance(written.exit, int) else written.exit
    return ErrorRule(
        exits=() if isinstance(codes, str) else codes,
        retries=written.retries,
        memory=written.memory,
        time=written.time,
    )
