"""Pages of workflow sets: the dashboard, a page per state, remedies, the graph of tasks."""
