"""Who does it in the background: planning, running, learning, caring for sites."""
