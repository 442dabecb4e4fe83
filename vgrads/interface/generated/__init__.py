"""Functions, generated from the requests of ``vgrads.operations`` by scripts.interfaces."""
