"""Batch queues and sites: bounds on waits, histories, backtests, offers."""
