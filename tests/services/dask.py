"""Somebody's Dask cluster on this machine, loaded by the tests that use one."""

from contextlib import contextmanager


@contextmanager
def dask_cluster(workers: int, threads: int = 1):
    """So many workers, each a process of its own, while the block runs."""
    from distributed import LocalCluster  # noqa: PLC0415 half a second for each process of tests

    with LocalCluster(
        n_workers=workers, threads_per_worker=threads, processes=True, dashboard_address=":0"
    ) as cluster:
        yield cluster
