"""Let people and programs ask: commands, HTTP, database, pages."""
