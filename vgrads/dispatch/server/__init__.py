"""The dispatcher at work: agents ask at its port, the core decides, the journal is written, then
they are answered."""
