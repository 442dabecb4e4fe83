"""Errors of a manager that no longer looks after a run."""

from __future__ import annotations

from vgrads.kernel.errors import VgradsError


class LeaseLost(VgradsError):
    """Another manager looks after the run: this one may neither write nor act any more."""

    exit_code = 130


class LeaseExpired(LeaseLost):
    """The journal was unreachable for a whole lease: another manager may look after the run."""

    exit_code = 4
