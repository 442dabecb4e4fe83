"""Are learned run times right? Recorded tasks, replayed."""
