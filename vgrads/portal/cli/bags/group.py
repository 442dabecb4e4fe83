"""The group ``vgrads bags``: its own commands, and those that are registered by entry point."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from vgrads.api.shell import Shell
from vgrads.portal.cli.options import answer_with, app
from vgrads.portal.cli.terminal import console, print_warnings


class Registered(TyperGroup):
    """Commands of ours, then those of others; the entry points are read only where ours are not
    enough.

    Contexts and commands are Click's, which newer versions of Typer bring under another name.
    """

    @cached_property
    def _others(self) -> TyperGroup:
        (point,) = entry_points(group="vgrads.commands", name="bags")
        return get_group(point.load())

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self._others.list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        ctx.obj = _shell()
        return self._others.get_command(ctx, cmd_name)


def _shell() -> Shell:
    from vgrads.portal.records.sites import resolve_history

    return Shell(
        history=resolve_history,
        answer=answer_with,
        warn=lambda warnings: print_warnings(console(stderr=True), warnings),
    )


bags_app = typer.Typer(
    name="bags",
    cls=Registered,
    help="Bags of tasks: run them, and study how they are scheduled.",
    no_args_is_help=True,
)
app.add_typer(bags_app)
