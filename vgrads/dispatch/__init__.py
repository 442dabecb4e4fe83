"""The dispatcher: agents request tasks and return results; the journal loses none."""
