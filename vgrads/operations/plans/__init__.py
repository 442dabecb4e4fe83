"""Plans and runs of workflow sets: requests, and what carries them out."""
