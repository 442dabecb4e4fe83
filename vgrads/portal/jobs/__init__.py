"""Background jobs: planning, running, learning, maintenance of sites."""
