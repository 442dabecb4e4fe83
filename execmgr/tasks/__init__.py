"""Tasks of planned runs as processes: their folders, environments, outputs, records."""
