"""``python -m vgrads`` is ``vgrads``."""

import sys

try:
    from vgrads.portal.main import main
except KeyboardInterrupt:  # while it is imported
    sys.stderr.write("vgrads: interrupted\n")
    sys.exit(130)

main()
