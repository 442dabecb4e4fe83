"""Python functions as tasks: interpreters that stay and run one call after another."""
