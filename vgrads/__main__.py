"""``vgrads``, also as ``python -m vgrads``."""

import sys


def main() -> None:
    """Run the command line; an interrupt while it is imported ends it like a later one."""
    try:
        from vgrads.portal.main import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.stderr.write("vgrads: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
