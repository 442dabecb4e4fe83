"""Messages between managers and the agents on nodes: the port, its messages and keys, and the agent
as a file. Used by planned runs and by the dispatcher."""
