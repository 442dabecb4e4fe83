"""What a dispatcher decides: a state, events in, commands out. Nothing here waits, reads or
writes."""
