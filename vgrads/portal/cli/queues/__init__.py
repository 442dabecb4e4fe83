"""Commands that ask a queue's history."""
