"""Errors of vgrads, as a tree.

::

    VgradsError            exit  transient
    ├── InputError           2   no     a file, field, line or option is wrong
    │   └── NothingToDo      0   no     everything that was requested is done
    ├── InfeasibleError      3   no     the request is well formed and cannot be promised
    └── SiteError            4   maybe  a site or service did not carry out a request

Each error has its location as data (``where``) and the remedy (``fix``), prints as one line, or one
line and a list of all problems of a document, and survives pickling, so that it can cross a process
boundary.
"""

from __future__ import annotations

from typing import Any

INTERNAL_ERROR = 70
"""Exit status of a command that ends by a fault of vgrads itself."""


_LONGEST_TEXT = 200


def brief(error: BaseException) -> str:
    """Return kind and text of an error of Python, in one short line: some contain all that was
    read."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


class VgradsError(Exception):
    """Root of all errors that a user may see; ``exit_code`` is the command's exit status."""

    exit_code = 1
    transient = False

    def __init__(
        self, what: str, parts: tuple[str, ...] = (), *, where: str = "", fix: str = ""
    ) -> None:
        super().__init__(what)
        self.what, self.parts, self.where, self.fix = what, parts, where, fix

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the message for users: the line, and one line for each of its ``parts``."""
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.fix})" if self.fix else ""
        return f"{place}{self.what}{advice}", *self.parts

    @property
    def without_place(self) -> str:
        """Return the message in one line, for where its place is stated already."""
        advice = f" ({self.fix})" if self.fix else ""
        more = f": {'; '.join(self.parts)}" if self.parts else ""
        return f"{self.what}{advice}{more}"

    def __str__(self) -> str:
        first, *more = self.lines
        return f"{first}: {'; '.join(more)}" if more else first

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows: those of the message, as at the command line."""
        first, *more = self.lines
        return [f"{type(self).__name__}: {first}", *(f"  {line}" for line in more)]

    def within(self, place: str) -> VgradsError:
        """Add the file or field where this happened, and keep the existing location."""
        self.where = f"{place}: {self.where}" if self.where else place
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # subclasses have constructors with other parameters, so they are rebuilt without them
        return _rebuild, (type(self), self.__dict__.copy())


def _rebuild(kind: type[VgradsError], state: dict[str, Any]) -> VgradsError:
    error = kind.__new__(kind)
    Exception.__init__(error, state["what"])
    error.__dict__.update(state)
    return error


class InputError(VgradsError):
    """Bad input: a file, a line of it, a field, an option. ``line``: of the text, where it is
    stated there and can be found."""

    exit_code = 2
    line: int | None = None

    def at_line(self, line: int | None) -> InputError:
        """Add the line where this is written, and keep the existing one."""
        self.line = self.line or line
        return self


class NothingToDo(InputError):
    """Everything that was requested is done already: no failure of a command."""

    exit_code = 0


class InfeasibleError(VgradsError):
    """No plan can meet the request; ``lacking`` states the missing resources."""

    exit_code = 3

    def __init__(
        self, what: str, parts: tuple[str, ...] = (), *, lacking: str = "", where: str = ""
    ) -> None:
        super().__init__(what, parts, where=where)
        self.lacking = lacking

    @property
    def lines(self) -> tuple[str, ...]:
        first, *more = super().lines
        return first, *([f"lacking: {self.lacking}"] if self.lacking else []), *more


class SiteError(VgradsError):
    """A site could not be reached or refused; ``transient``: a repeated call may succeed."""

    exit_code = 4

    def __init__(self, what: str, *, site: str, transient: bool, fix: str = "") -> None:
        super().__init__(what, where=f"site {site}", fix=fix)
        self.site, self.transient = site, transient
