"""Commands about targets of alarms."""
