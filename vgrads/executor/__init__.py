"""Python functions as tasks: :class:`vgrads.Executor`."""
