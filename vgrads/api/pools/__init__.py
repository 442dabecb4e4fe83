"""Pools of workers and their managers: the ledger between them."""
