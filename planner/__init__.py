"""The planner: assigns tasks and their replicas to slots. Pure functions of a frozen snapshot."""
