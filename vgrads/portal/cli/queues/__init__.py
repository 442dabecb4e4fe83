"""Commands that query a queue's history."""
