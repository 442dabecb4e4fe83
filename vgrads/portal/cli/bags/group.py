"""The group ``vgrads bags``: its own commands, and commands registered by entry point."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from vgrads.portal.cli.options import answer_with, app

if TYPE_CHECKING:
    from vgrads.api.command_context import CommandContext


class Registered(TyperGroup):
    """The group's own commands, then registered ones; the entry points are read only where the own
    commands do not suffice.

    Contexts and commands are Click's, which newer versions of Typer contain under another name.
    """

    @cached_property
    def _others(self) -> TyperGroup:
        from importlib.metadata import entry_points

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


def _shell() -> CommandContext:
    from vgrads.api.command_context import CommandContext
    from vgrads.portal.cli.terminal import busy, console, print_warnings
    from vgrads.portal.cli.wide import set_wide
    from vgrads.portal.records.sites import resolve_history

    return CommandContext(
        history=resolve_history,
        answer=answer_with,
        busy=lambda step: busy(console(stderr=True), step),
        set_wide=set_wide,
        warn=lambda warnings: print_warnings(console(stderr=True), warnings),
    )


bags_app = typer.Typer(
    name="bags",
    cls=Registered,
    help="Run bags of tasks, and simulate their scheduling.",
    no_args_is_help=True,
)
app.add_typer(bags_app)
