"""Tables and small parsers that the commands share."""
