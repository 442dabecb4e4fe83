"""Which task in which slot? Calendars of slots, list scheduling, mappings, packings."""
