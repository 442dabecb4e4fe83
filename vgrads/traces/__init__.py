"""What did the queues do? Job records from accounting logs, as columns."""
