"""The command ``vgrads``: all commands put together, and errors of ours as one line and an exit
status."""

from __future__ import annotations

import gc
import shlex
import sys
import tempfile
import traceback
from importlib.metadata import version

import typer

from vgrads.kernel.errors import SiteError, VgradsError
from vgrads.portal import serve
from vgrads.portal.cli.admin import commands as admin
from vgrads.portal.cli.bags import commands as bags
from vgrads.portal.cli.bags import matrix_commands as matrices
from vgrads.portal.cli.options import app
from vgrads.portal.cli.plans import commands as plans
from vgrads.portal.cli.plans import convert_commands as convert
from vgrads.portal.cli.plans import runtime_commands as runtimes
from vgrads.portal.cli.plans import size_commands as sizes
from vgrads.portal.cli.pools import commands as pools
from vgrads.portal.cli.queues import commands as queues
from vgrads.portal.cli.sites import commands as sites

COMMANDS = (plans, convert, pools, queues, runtimes, sites, sizes, bags, matrices, admin, serve)
"""Importing them adds their commands to the application, in this order."""
_INTERRUPTED, _OWN_FAULT = 130, 70
_GARBAGE = 100_000
"""New objects after which Python looks for garbage: nearly all that a command makes lives until its
end, and looking for it after every 700 took a tenth of the time."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    gc.set_threshold(_GARBAGE)
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = int(app(args=arguments, prog_name="vgrads", standalone_mode=False) or 0)
    except VgradsError as error:
        first, *more = (" ".join(line.splitlines()).rstrip() for line in error.lines)
        sys.stderr.write("\n  ".join([f"vgrads: {first}", *more]) + "\n")
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
        return _own_fault(error) if usage is None else usage
    if code == _INTERRUPTED:  # typer itself turns Ctrl-C into this code
        sys.stderr.write("vgrads: interrupted\n")
    return code


def _own_fault(error: Exception) -> int:
    """What nobody foresaw: said in a line, kept whole in a file, to be reported."""
    whole = "".join(traceback.format_exception(error))
    with tempfile.NamedTemporaryFile(
        "w", prefix="vgrads-fault-", suffix=".txt", delete=False
    ) as kept:
        kept.write(
            f"vgrads {version('vgrads')}, Python {sys.version}, {shlex.join(sys.argv)}\n\n{whole}"
        )
    sys.stderr.write(
        f"vgrads: this is a fault of vgrads itself, not yours: {type(error).__name__}: "
        f"{' '.join(str(error).split())[:300]}\n"
        f"vgrads: please report it with {kept.name}\n"
    )
    return _OWN_FAULT


def _usage_error(error: Exception) -> int | None:
    """Click's own complaints about options: shown as it would, exit 2."""
    show = getattr(error, "show", None)
    if show is None:
        return None
    show()
    return int(getattr(error, "exit_code", 2))
