"""Decisions of the execution manager: state and event in, commands out. Nothing here waits, reads
or writes."""
