"""Pools of agents that managers share: requests."""
