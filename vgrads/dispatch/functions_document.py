"""The part of a bag's document that makes its tasks calls of Python functions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vgrads.exchange.function_file import compute_function_digest
from vgrads.kernel.documents import Document

VALUE = "{task}.value"
"""Name of the file with the value of a function, where it is large."""


class FunctionsDocument(Document):
    """Tasks are calls of Python functions. ``command``: of a shell, ends in a Python, which runs
    them; empty: the Python of the agent. ``setup``: digest of the large part that each interpreter
    reads first."""

    command: Annotated[str, Field(max_length=20_000)] = ""
    setup: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""

    @property
    def python(self) -> tuple[str, str, str]:
        """Return what an agent needs to run the calls: the command, and the digests of the program
        and of the setup."""
        return self.command or 'exec "$VGRADS_PYTHON"', compute_function_digest(), self.setup
