"""The command ``vgrads``: all commands put together, and errors of ours as one line and an exit status."""

from __future__ import annotations

import sys

import typer

from kernel.errors import SiteError, VgradsError
from portal import serve
from portal.cli import admin_commands, bag_commands, commands, queue_commands, site_commands
from portal.cli.options import app

COMMANDS = (commands, queue_commands, site_commands, bag_commands, admin_commands, serve)
"""Importing them adds their commands to the application."""
_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = int(app(args=arguments, prog_name="vgrads", standalone_mode=False) or 0)
    except VgradsError as error:
        sys.stderr.write(f"vgrads: {' '.join(str(error).split())}\n")
        return error.exit_code
    except (
        OSError
    ) as error:  # a full disk, a folder that is not there: the system refuses, in its own words
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"vgrads: {place}{error.strerror or error}\n")
        return SiteError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except Exception as error:
        usage = _usage_error(error)
        if usage is None:
            raise
        return usage
    if code == _INTERRUPTED:  # typer itself turns Ctrl-C into this code
        sys.stderr.write("vgrads: interrupted\n")
    return code


def _usage_error(error: Exception) -> int | None:
    """Click's own complaints about options: shown as it would, exit 2."""
    show = getattr(error, "show", None)
    if show is None:
        return None
    show()
    return int(getattr(error, "exit_code", 2))
