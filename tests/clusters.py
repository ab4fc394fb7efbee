"""A Dask cluster for tests."""

import warnings
from contextlib import contextmanager

import pytest


@contextmanager
def two_workers(**config):
    """Two Dask workers in processes of their own, under options of Dask."""
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            dask.config.set(config),
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0"
            ) as local,
            distributed.Client(local) as client,
        ):
            yield client
