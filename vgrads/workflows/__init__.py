"""What is to be run: tasks, DAG workflows, workflow sets, and the files that they come from."""
