"""``python -m vgrads`` is ``vgrads``."""

from vgrads.portal.main import main

main()
