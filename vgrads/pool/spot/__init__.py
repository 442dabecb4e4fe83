"""Spot nodes: how long they are available, and when to use them rather than on-demand nodes."""
