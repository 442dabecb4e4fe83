"""Engines that run tasks inside slots: local processes, Dask workers elsewhere, virtual time, an
outside engine."""
