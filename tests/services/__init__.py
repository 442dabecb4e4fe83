"""Real services for tests: how each is started and stopped."""
