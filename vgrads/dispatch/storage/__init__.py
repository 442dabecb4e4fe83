"""A dispatcher's storage: its journal, its bags, their inputs and results."""
