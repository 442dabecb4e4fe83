"""Checks of an installation: facts are gathered without changing anything, then judged."""
