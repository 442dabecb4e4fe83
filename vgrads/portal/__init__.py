"""Let people and programs ask: records, charts, background jobs, the web, the command line."""
