"""What runs tasks inside slots: processes here, Dask workers elsewhere, virtual time, an engine
outside."""
