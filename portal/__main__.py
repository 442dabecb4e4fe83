"""``python -m portal`` is ``vgrads``."""

from portal.main import main

main()
