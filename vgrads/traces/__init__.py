"""Histories of queues: job records from accounting logs, as columns."""
