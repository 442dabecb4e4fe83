"""Commands, functions, methods of the client and the reference, generated from the requests of
``vgrads.operations`` and committed. ``make interfaces`` writes, ``make lint`` compares them."""
