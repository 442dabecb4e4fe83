"""Studies of bounds on waits and of reservations, on recorded queues."""
