"""State of a queue: tables, how events change them, and features of a job."""
