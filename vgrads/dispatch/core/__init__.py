"""The dispatcher's decisions: a state, events in, commands out. Nothing here waits, reads or
writes."""
