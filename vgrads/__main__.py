"""``vgrads``, also as ``python -m vgrads``."""

import os
import signal
import sys


def _end(*_: object) -> None:
    os.write(2, b"vgrads: interrupted\n")
    os._exit(130)


def main() -> None:
    """Run the command line; an interrupt while it is imported ends it like a later one: at once,
    since an exception could be lost in an import."""
    before = signal.getsignal(signal.SIGINT)
    try:
        if before is signal.default_int_handler:  # not where the shell ignores it
            signal.signal(signal.SIGINT, _end)
        from vgrads.portal.main import main as run  # noqa: PLC0415

        signal.signal(signal.SIGINT, before)
        run()
    except KeyboardInterrupt:
        sys.stderr.write("vgrads: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
