"""Which slots can I have, when, how surely, at what cost? Batch queues and clouds made alike."""
