"""Kernel: time, event queue, units, errors, random streams. Imports no other package of vgrads."""
