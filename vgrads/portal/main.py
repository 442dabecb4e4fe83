"""The command ``vgrads``: all commands combined; vgrads errors become one line and an exit
status."""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from vgrads.kernel.errors import INTERNAL_ERROR, InputError, SiteError, VgradsError
from vgrads.portal.cli.options import app

COMMANDS = {
    "cli.generated.plans": ("plan", "run"),
    "cli.plans.commands": ("demo", "study"),
    "cli.plans.init_commands": ("init",),
    "cli.generated.runs": (
        *("resume", "retry", "change", "cancel", "archive"),
        *("status", "logs", "top", "explain", "gantt"),
    ),
    "cli.plans.convert_commands": ("convert",),
    "cli.generated.pools": ("pool",),
    "cli.pools.commands": ("pool",),
    "cli.slurm.commands": ("slurm",),
    "serve_slurm": ("slurm",),
    "cli.generated.queues": ("forecast", "bound", "probability", "trajectory", "backtest"),
    "cli.generated.rankings": ("where", "score"),
    "cli.plans.runtime_commands": ("runtimes",),
    "cli.generated.sites": ("sites",),
    "cli.generated.sizes": ("size",),
    "cli.generated.bags": ("bags",),
    "cli.bags.commands": ("bags",),
    "cli.bags.workload_commands": ("bags",),
    "cli.generated.matrices": ("allpairs", "wavefront", "matrix"),
    "cli.generated.administration": ("token", "db"),
    "cli.generated.alarms": ("alarms",),
    "cli.admin.doctor_commands": ("doctor",),
    "serve": ("serve", "config"),
}
"""Modules of ``vgrads.portal``, and the commands and groups that importing each of them adds to the
application, in this order. A group may have commands of several."""
_INTERRUPTED = 130
_GARBAGE = 100_000
"""New objects between garbage collections: nearly all objects of a command live until its end, and
a collection after every 700 took a tenth of the time."""


def _pass_interrupt_on(error: sys.UnraisableHookArgs) -> None:
    """Interrupt again where Ctrl-C came in a callback that cannot raise it: it would be lost."""
    if error.exc_type is KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT)
    else:
        sys.__unraisablehook__(error)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    if arguments is None:
        sys.unraisablehook = _pass_interrupt_on
    gc.set_threshold(_GARBAGE)
    code = _run(arguments)
    if arguments is None:
        gc.freeze()  # the last collections of a process that ends took 60 ms
    sys.exit(code)


def load_commands(arguments: Sequence[str]) -> None:
    """Import the modules of the command that the arguments name: importing all of them takes longer
    than many a command. All where they name none: for the help, errors and shell completion.

    No option of the application itself has a value, so the first argument that is no option is the
    command.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    for module in [module for module, names in COMMANDS.items() if name in names] or COMMANDS:
        import_module(_find_module(module))


def _find_module(name: str) -> str:
    return f"vgrads.portal.{name}"


@cache
def _build(_modules: frozenset[str]) -> Callable[..., object]:
    """Return what parses and calls the commands of the imported modules: it is built once for a
    process that calls several."""
    return get_command(app).main


def _run(arguments: list[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        load_commands(words)
        call = _build(frozenset(name for name in COMMANDS if _find_module(name) in sys.modules))
        result = call(arguments, prog_name="vgrads", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except VgradsError as error:
        return _report(error)
    except OSError as error:  # full disk, missing folder: the system's own message
        place = f"{error.filename}: " if error.filename else ""
        _write(f"vgrads: {place}{error.strerror or error}\n")
        return SiteError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except Exception as error:
        return (
            _report_own_fault(error)
            if getattr(error, "show", None) is None
            else _report_misuse(error, words)
        )
    if code == _INTERRUPTED:  # typer converts Ctrl-C to this code
        _write("vgrads: interrupted\n")
    return code


def _write(text: str) -> None:
    """Write on stderr where that is possible: the exit status says the rest on a full disk."""
    with suppress(OSError, ValueError):
        sys.stderr.write(text)


def _report(error: VgradsError) -> int:
    """Print an error on stderr, at a terminal broken between words; return the exit status."""
    first, *more = (" ".join(line.splitlines()).rstrip() for line in error.lines)
    lines = [f"vgrads: {first}", *(f"  {line}" for line in more)]
    if sys.stderr.isatty():
        from vgrads.kernel.text_table import wrap

        width = shutil.get_terminal_size().columns
        lines = [part for line in lines for part in wrap(line, width)]
    _write("\n".join(lines) + "\n")
    return error.exit_code


def _report_misuse(error: Exception, arguments: Sequence[str]) -> int:
    """Report an error of Click about arguments as any other; without arguments, show the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error}\n")
        return InputError.exit_code
    from vgrads.portal.cli.usage import usage_error

    application: Any = get_command(app)
    return _report(usage_error(error, application, arguments))


def _report_own_fault(error: Exception) -> int:
    """Report an internal error in one line, and store its details in a file."""
    from importlib.metadata import version

    from vgrads.portal.cli.usage import hide_urls

    whole = "".join(traceback.format_exception(error))
    with tempfile.NamedTemporaryFile(
        "w", prefix="vgrads-fault-", suffix=".txt", delete=False
    ) as report:
        report.write(
            f"vgrads {version('vgrads')}, Python {sys.version}, "
            f"{shlex.join(map(hide_urls, sys.argv))}\n\n{whole}"
        )
    _write(
        f"vgrads: internal error: {type(error).__name__}: "
        f"{' '.join(str(error).split())[:300]}\n"
        f"vgrads: please report it and attach {report.name}\n"
    )
    return INTERNAL_ERROR
