"""The Python interface of vgrads, independent of terminal, HTTP and database."""
