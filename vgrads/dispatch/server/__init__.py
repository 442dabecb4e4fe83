"""The dispatcher's server: agents send requests to its port, the core decides, the journal is
written, then they are answered."""
