"""The help of the application: commands in groups, those of every day first, each with its first
sentence."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

GROUPS = {
    "Every day": ("run", "status", "logs", "plan", "forecast"),
    "Runs and bags": ("resume", "retry", "change", "cancel", "explain", "top"),
    "Sets and bags": ("init", "bags", "size", "pool", "slurm", "runtimes"),
    "Queues and sites": ("score", "backtest", "sites"),
    "Service": ("serve", "token", "alarms", "db", "doctor"),
}
"""Names of commands by group, in the order of the help. All others are hidden: they do what one of
these does too, are for few, or are named below the list."""
_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
_ORDER = list(_GROUP_OF)


class GroupedHelp(TyperGroup):
    """The application with its commands in groups; without arguments, the commands of every day."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict(
            sorted(self.commands.items(), key=lambda item: _find_position(item[0]))
        )
        for name, command in self.commands.items():
            vars(command)["rich_help_panel"] = _GROUP_OF.get(name)
            command.hidden = command.hidden or name not in _GROUP_OF
            command.short_help = first_sentence(command.help or "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print ten lines and end where there are no arguments."""
        if not args:
            import click  # noqa: PLC0415 loaded by then

            click.echo(FIRST_LINES)
            ctx.exit(0)
        return super().parse_args(ctx, args)


FIRST_LINES = """\
Promise a deadline on machines you do not own.

  vgrads demo                      see a promise made and kept, simulated
  vgrads init                      write a first set: what, where, by when
  vgrads plan SET                  slots, tasks, probability of the promise
  vgrads run SET                   plan, then run: status, logs, cancel
  vgrads forecast LOG -n 16 -w 2h  how long a queue makes such a job wait
  vgrads bags run BAG              many short tasks
  vgrads serve                     all of it in a browser, and over REST
  vgrads --help                    all commands, with examples in COMMAND --help"""
"""Printed by ``vgrads`` alone."""


def _find_position(name: str) -> int:
    return _ORDER.index(name) if name in _GROUP_OF else len(_ORDER)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line.

    >>> first_sentence("Compute F for all pairs,\\nin blocks. The same command resumes.")
    'Compute F for all pairs, in blocks.'
    """
    line = " ".join(text.split())
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.strip()
