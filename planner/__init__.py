"""Which task, and which copy of it, runs in which slot? Pure functions of a frozen snapshot."""
