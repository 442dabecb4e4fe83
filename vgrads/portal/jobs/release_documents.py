"""Requests about tasks that start when they are released, as documents: releases, and joint
submissions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator

from vgrads.kernel.documents import Document, NotNegative, as_value_error
from vgrads.workflows.dag import check_command
from vgrads.workflows.sets import TaskDocument, WorkflowDocument

_MOST = 10_000
_Name = Annotated[str, Field(max_length=200)]


class ReleaseDocument(Document):
    """Release of a task, with its command."""

    kind: Literal["release"] = "release"
    workflow: _Name
    task: _Name
    command: Annotated[str, Field(min_length=1)]
    memory_mib: NotNegative = 0.0

    @field_validator("command")
    @classmethod
    def _command(cls, value: str) -> str:
        as_value_error(lambda: check_command(value))
        return value


class AbandonDocument(Document):
    """A task that will not be released; its dependents are given up with it."""

    kind: Literal["give-up"] = "give-up"
    workflow: _Name
    task: _Name
    reason: Annotated[str, Field(max_length=1000)] = "given up"


class AddDocument(Document):
    """An additional task of the workflow: the remainder is planned again with it."""

    kind: Literal["add"] = "add"
    workflow: _Name
    task: _Name
    document: TaskDocument


class MailDocument(Document):
    """A request to a run, as one unit: tasks are added first, then released, then given up."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"release": [{"workflow": "calls-1", "task": "align-a", "command": "./align a"}]}
            ]
        }
    )

    add: Annotated[tuple[AddDocument, ...], Field(max_length=_MOST)] = ()
    release: Annotated[tuple[ReleaseDocument, ...], Field(max_length=_MOST)] = ()
    give_up: Annotated[tuple[AbandonDocument, ...], Field(max_length=_MOST)] = ()


class JointSubmissionDocument(Document):
    """One workflow of a set that ``of`` callers put together; ``ticket``: identifies this caller.

    All must state the same set; ``wait``: how long the first one waits for the others.
    """

    ticket: Annotated[str, Field(min_length=8, max_length=100)]
    of: Annotated[int, Field(ge=1, le=1000)]
    fraction: str | Annotated[float, Field(allow_inf_nan=False)] = 1.0
    deadline: str
    probability: Annotated[float, Field(gt=0, lt=1)] = 0.9
    wait: str = "10m"
    workflow: WorkflowDocument
