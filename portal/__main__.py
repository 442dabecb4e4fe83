"""``python -m portal`` is ``vgrads``."""

from portal.commands import main

main()
