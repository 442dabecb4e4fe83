"""The web, for users and programs: REST, pages, metrics."""
