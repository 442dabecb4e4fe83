"""What an execution manager decides: state, event in, commands out. Nothing here waits, reads or
writes."""
