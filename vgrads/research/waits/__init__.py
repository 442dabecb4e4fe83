"""Are bounds on waits and reservations kept? Recorded queues, replayed."""
