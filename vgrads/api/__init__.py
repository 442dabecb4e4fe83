"""What Python programs can ask of vgrads, free of terminal, HTTP and database."""
