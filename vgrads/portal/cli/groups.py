"""The help of the application: commands in groups, those of every day first, each with its first
sentence."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

GROUPS = {
    "Every day": ("run", "status", "logs", "plan", "bound"),
    "Plan and run": (
        *("init", "demo", "top", "resume", "retry", "cancel", "explain", "gantt", "convert"),
        "runtimes",
    ),
    "Queues and sites": (
        *("probability", "trajectory", "where", "score", "backtest", "sites", "offers"),
    ),
    "Bags and matrices": ("bags", "allpairs", "wavefront", "matrix", "size", "pool", "slurm"),
    "Service": ("serve", "config", "token", "db", "doctor"),
    "Studies": ("study",),
}
"""Names of commands by group, in the order of the help."""
_OTHERS = "Other commands"
_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
_ORDER = list(_GROUP_OF)


class GroupedHelp(TyperGroup):
    """The application with its commands in groups; commands of no group are last."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict(sorted(self.commands.items(), key=lambda item: _position(item[0])))
        for name, command in self.commands.items():
            vars(command)["rich_help_panel"] = _GROUP_OF.get(name, _OTHERS)
            command.short_help = first_sentence(command.help or "")


def _position(name: str) -> int:
    return _ORDER.index(name) if name in _GROUP_OF else len(_ORDER)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line.

    >>> first_sentence("Compute F for all pairs,\\nin blocks. The same command resumes.")
    'Compute F for all pairs, in blocks.'
    """
    line = " ".join(text.split())
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.strip()
