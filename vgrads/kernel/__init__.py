"""The ground: time, event order, units, errors, random streams. Imports nothing of ours."""
