"""What can be asked of vgrads, free of terminal, HTTP and database: look into queues, plan, run, look at sites."""
