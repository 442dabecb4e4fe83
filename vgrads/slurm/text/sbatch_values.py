"""The values of sbatch's options, with sbatch's messages about those that are wrong."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from vgrads.slurm.arrays import ArraySpec, parse_array
from vgrads.slurm.dependencies import Dependency, parse_dependency
from vgrads.slurm.environment import Export, parse_export
from vgrads.slurm.errors import SlurmError, command_error
from vgrads.slurm.limits import parse_count, parse_limit, parse_memory
from vgrads.slurm.text.sbatch_options import REFUSED, UNAVAILABLE
from vgrads.slurm.times import parse_instant

_Value = TypeVar("_Value")
_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9]+)(?:@(\d*))?")
_NODES = re.compile(r"(\d+)(?:-(\d+))?")
_NOTHING = re.compile(r"(?i)|0|none|[^,]*[:=]0(,[^,]*[:=]0)*")
"""A request for no unit of a resource."""
_BEFORE_S, _LONGEST_BEFORE_S = 60, 65535
_INVALID = 255
"""Exit status of sbatch after a value that it cannot read."""


@dataclass(frozen=True)
class SignalRequest:
    """``--signal``: the signal, how many seconds before the limit, and whether the batch shell
    alone receives it."""

    number: int
    before_s: int = _BEFORE_S
    batch_shell: bool = False
    reservation: bool = False


def parse_signal_name(text: str) -> int:
    """Return the number of ``USR1``, ``SIGUSR1``, ``usr1`` or ``10``. Raises ValueError."""
    if text.isdigit():
        number = int(text)
        if not 0 < number <= 65:
            raise ValueError(text)
        return number
    name = text.upper().removeprefix("SIG")
    try:
        return int(signal.Signals[f"SIG{name}"])
    except KeyError as error:
        raise ValueError(text) from error


class Chosen:
    """The options that count, by long name, and the instant of the submission."""

    def __init__(self, options: Mapping[str, str | None], now_s: float) -> None:
        self._options, self._now_s = options, now_s

    def refuse(self) -> None:
        """Raise SlurmError for an option that changes what the job gets, or requests what no node
        has."""
        for name in self._options:
            if name in REFUSED:
                raise refusal(f"--{name}", REFUSED[name])
        self.refuse_unavailable()

    def refuse_unavailable(self) -> None:
        """Raise SlurmError for an option that requests what no node has."""
        for name, value in self._options.items():
            if name in UNAVAILABLE and not _NOTHING.fullmatch(value or ""):
                stated = f"--{name}={value}"
                raise refusal(stated, "no node of vgrads has that", failed=UNAVAILABLE[name])

    def has(self, name: str) -> bool:
        """Whether an option is among them."""
        return name in self._options

    def optional(self, name: str) -> str | None:
        """Return the text of an option, None without it."""
        return self._options.get(name)

    def text(self, name: str, default: str = "") -> str:
        """Return the text of an option."""
        value = self._options.get(name)
        return default if value is None else value

    def count(self, name: str, default: int = 1) -> int:
        """Return a number above 0."""
        value = self._options.get(name)
        if value is None:
            return default
        try:
            return parse_count(value)
        except ValueError as error:
            raise command_error(
                "sbatch", f'Invalid numeric value "{value}" for --{name}.'
            ) from error

    def nodes(self) -> int:
        """Return 1: jobs run on one node."""
        value = self.text("nodes", "1")
        match = _NODES.fullmatch(value)
        if match is None:
            message = f'"{value}" is not a valid node count'
            raise command_error("sbatch", message, code=_INVALID)
        least, most = int(match[1]), int(match[2] or match[1])
        if most < least:
            raise command_error(
                "sbatch",
                f"Maximum node count {most} is less than minimum node count {least}",
                code=_INVALID,
            )
        if least > 1:
            raise refusal(
                f"--nodes={value}",
                "each job runs on one node, and MPI over several nodes is not supported",
            )
        return 1

    def tasks(self, nodes: int) -> int:
        """Return the number of tasks, which ``--ntasks-per-node`` states too."""
        return self.count("ntasks", nodes * self.count("ntasks-per-node"))

    def memory(self, name: str) -> int | None:
        """Return an amount of memory in MiB."""
        value = self._options.get(name)
        return None if value is None else self._parsed(name, parse_memory)

    def memory_mib(self, cpus: int) -> int | None:
        """Return the memory of the whole job in MiB."""
        for name, factor in (("mem", 1), ("mem-per-cpu", cpus)):
            amount = self.memory(name)
            if amount is not None:
                return amount * factor
        return None

    def limit_s(self, name: str) -> float | None:
        """Return a time limit in seconds: ``time``, or the least one, ``time-min``."""
        try:
            return self._parsed(name, parse_limit) if self.has(name) else None
        except OverflowError as error:
            message = "Requested time limit is invalid (missing or exceeds some limit)"
            raise command_error("sbatch", f"Batch job submission failed: {message}") from error

    def instant_s(self, name: str) -> float | None:
        """Return an instant in Unix seconds."""
        value = self._options.get(name)
        if value is None:
            return None
        try:
            return parse_instant(value, self._now_s)
        except SlurmError as error:
            invalid = _make_invalid(name)
            raise SlurmError(f"{error.what}\n{invalid.what}", _INVALID) from error

    def word(self, name: str, words: Mapping[str, str]) -> str:
        """Return which of ``words`` an option begins with."""
        value = self._options.get(name)
        if value is None:
            return ""
        for start, result in words.items():
            if value.lower().startswith(start) and result.startswith(value.lower()):
                return result
        raise _make_invalid(name)

    def yes_or_no(self, name: str) -> bool | None:
        """Return a truth value, None without the option."""
        value = self._options.get(name)
        if value is None:
            return None
        if value.lower() in ("yes", "y"):
            return True
        if value.lower() in ("no", "n"):
            return False
        raise _make_invalid(name)

    def requeue(self) -> bool | None:
        """Return whether the job may run again, None where this was not stated."""
        if self.has("requeue"):
            return True
        return False if self.has("no-requeue") else None

    def exclusive(self) -> bool:
        """Return whether the job gets whole nodes."""
        if self.text("exclusive") not in ("", "user", "mcs"):
            raise _make_invalid("exclusive")
        return self.has("exclusive")

    def export(self) -> Export:
        """Return which variables reach the job."""
        return parse_export(self.optional("export"))

    def signal(self) -> SignalRequest | None:
        """Return the signal before the end."""
        value = self._options.get("signal")
        if value is None:
            return None
        match = _SIGNAL.fullmatch(value)
        try:
            if match is None:
                raise ValueError(value)
            flags, name, before = match[1] or "", match[2], match[3]
            before_s = _BEFORE_S if before is None else int(before or 0)
            if before_s > _LONGEST_BEFORE_S:
                raise ValueError(value)
            return SignalRequest(parse_signal_name(name), before_s, "B" in flags, "R" in flags)
        except ValueError as error:
            raise _make_invalid("signal") from error

    def array(self, max_size: int) -> ArraySpec | None:
        """Return the indices of an array."""
        value = self._options.get("array")
        if value is None:
            return None
        try:
            return parse_array(value, max_size)
        except ValueError as error:
            raise command_error(
                "sbatch", "Batch job submission failed: Invalid job array specification"
            ) from error

    def dependency(self) -> Dependency:
        """Return what the job waits for."""
        return parse_dependency(self.text("dependency"))

    def _parsed(self, name: str, parse: Callable[[str], _Value]) -> _Value:
        try:
            return parse(self.text(name))
        except ValueError as error:
            raise _make_invalid(name) from error


def refusal(option: str, reason: str, failed: str = "") -> SlurmError:
    """Return the error for an option that vgrads does not carry out; ``failed``: the reason that
    Slurm would state."""
    name = option.lstrip("-").partition("=")[0]
    message = (
        f"{option}: {reason}. Submit to a partition of Slurm itself, or set "
        f"VGRADS_SLURM_IGNORE={name} to ignore the option."
    )
    return command_error("sbatch", message, *([failed] if failed else []))


def _make_invalid(name: str) -> SlurmError:
    return command_error("sbatch", f"Invalid --{name} specification", code=_INVALID)
