"""Time limits, memory and counts as options of Slurm state them, and how Slurm prints them.

Sources: --time and --mem in sbatch(1). Slurm keeps time limits in whole minutes and rounds up.
"""

from __future__ import annotations

import math
import re

_DAYS = re.compile(r"(\d+)-(?:(\d+)(?::(\d+)(?::(\d+))?)?)?")
_CLOCK = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)")
_MEMORY = re.compile(r"(\d+)([KMGTP]?)B?", re.IGNORECASE)
_COUNT = re.compile(r"\s*\+?(\d+)")
_UNLIMITED = ("INFINITE", "UNLIMITED", "-1")
_MOST_MINUTES = 2**31 - 1
_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


def parse_limit(text: str) -> float | None:
    """Parse a time limit into seconds, rounded up to whole minutes; None is unlimited, as is 0.

    Accepts ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S`` and ``UNLIMITED``, up to
    2,147,483,647 minutes. Raises ValueError, and OverflowError beyond that.

    >>> parse_limit("90"), parse_limit("1:30"), parse_limit("1-2"), parse_limit("0")
    (5400.0, 120.0, 93600.0, None)
    """
    if text.upper() in _UNLIMITED:
        return None
    days = _DAYS.fullmatch(text)
    if days:
        d, h, m, s = (int(part or 0) for part in days.groups())
        seconds = ((d * 24 + h) * 60 + m) * 60 + s
    else:
        clock = _CLOCK.fullmatch(text)
        if clock is None:
            raise ValueError(text)
        hours, minutes, last = clock.groups()
        if minutes is None:
            seconds = int(last) * 60
        else:
            seconds = (int(hours or 0) * 60 + int(minutes)) * 60 + int(last)
    whole = -(-seconds // 60)
    if whole > _MOST_MINUTES:
        raise OverflowError(text)
    return whole * 60.0 if whole else None


def parse_memory(text: str) -> int:
    """Parse memory into MiB, rounded up; the default unit is M. Raises ValueError.

    >>> parse_memory("100"), parse_memory("2G"), parse_memory("1500K")
    (100, 2048, 2)
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number, unit = int(match[1]), match[2].upper()
    if unit == "K":
        return -(-number // 1024)
    return number * _MIB[unit]


def parse_count(text: str) -> int:
    """Parse a number above 0. Raises ValueError."""
    match = _COUNT.fullmatch(text)
    if match is None or int(match[1]) < 1:
        raise ValueError(text)
    return int(match[1])


def format_short(seconds: float | None) -> str:
    """Format a duration as squeue does: ``M:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``.

    >>> format_short(61), format_short(3600), format_short(90000), format_short(None)
    ('1:01', '1:00:00', '1-01:00:00', 'UNLIMITED')
    """
    if seconds is None:
        return "UNLIMITED"
    if seconds < 0:
        return "INVALID"
    days, hours, minutes, rest = _split(seconds)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_long(seconds: float | None) -> str:
    """Format a duration as sacct and scontrol do: ``HH:MM:SS`` or ``D-HH:MM:SS``.

    >>> format_long(61), format_long(90000), format_long(None)
    ('00:01:01', '1-01:00:00', 'UNLIMITED')
    """
    if seconds is None:
        return "UNLIMITED"
    days, hours, minutes, rest = _split(max(0.0, seconds))
    return (
        f"{days}-{hours:02}:{minutes:02}:{rest:02}"
        if days
        else f"{hours:02}:{minutes:02}:{rest:02}"
    )


def format_cpu_time(seconds: float) -> str:
    """Format processor time as sacct does: with milliseconds below one hour.

    >>> format_cpu_time(0), format_cpu_time(61.25), format_cpu_time(3600)
    ('00:00:00', '01:01.250', '01:00:00')
    >>> format_cpu_time(59.9996), format_cpu_time(3599.9996)
    ('01:00.000', '01:00:00')
    """
    thousandths = int(seconds * 1000 + 0.5)
    if seconds <= 0 or thousandths >= 3_600_000:
        return format_long(thousandths / 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"


def format_memory(mib: int) -> str:
    """Format MiB as Slurm does: in the largest unit in which it is a whole number.

    >>> format_memory(100), format_memory(2048), format_memory(1536), format_memory(0)
    ('100M', '2G', '1536M', '0')
    """
    if mib <= 0:
        return "0"
    unit = 0
    while mib % 1024 == 0 and unit < 3:
        mib //= 1024
        unit += 1
    return f"{mib}{'MGTP'[unit]}"


def format_memory_as(mib: float, unit: str) -> str:
    """Format MiB in a fixed unit (K, M, G, T) with two decimals, as ``sacct --units`` does.

    >>> format_memory_as(500, "G"), format_memory_as(500, "K"), format_memory_as(1024, "G")
    ('0.49G', '512000K', '1G')
    """
    value = mib * math.pow(1024.0, 1 - "KMGTP".index(unit))
    return f"{round(value)}{unit}" if abs(value - round(value)) < 1e-9 else f"{value:.2f}{unit}"


def _split(seconds: float) -> tuple[int, int, int, int]:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return days, hours, minutes, rest
