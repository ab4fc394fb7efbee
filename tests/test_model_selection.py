"""Splitters: folds of compact blocks, a buffer around them, and scikit-learn's tools."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import haversine_distances
from sklearn.model_selection import GridSearchCV, cross_val_score

from nona_sklearn.model_selection import SpatialKFold

EARTH_RADIUS = 6_371_008.8


@pytest.fixture
def places():
    rng = np.random.default_rng(0)
    longitude = (rng.uniform(170, 190, 200) + 180) % 360 - 180  # across the 180th meridian
    return pd.DataFrame({"latitude": rng.uniform(-10, 10, 200), "longitude": longitude})


def arcs(X):
    """Metres between all places."""
    return EARTH_RADIUS * haversine_distances(np.deg2rad(X))


def test_every_row_is_tested_once(places):
    splitter = SpatialKFold(4, random_state=0)
    tested = np.concatenate([test for _, test in splitter.split(places)])
    assert np.sort(tested).tolist() == [*range(200)]
    assert splitter.get_n_splits(places) == 4
    for train, test in splitter.split(places):
        assert np.sort(np.concatenate([train, test])).tolist() == [*range(200)]


def test_the_buffer_is_a_distance_in_metres(places):
    whole = SpatialKFold(4, random_state=0).split(places)
    buffered = SpatialKFold(4, buffer=200_000, random_state=0).split(places)
    for (train, test), (left, same) in zip(whole, buffered, strict=True):
        assert (test == same).all()
        near = arcs(places)[train][:, test].min(axis=1) <= 200_000
        assert 0 < near.sum() < len(train)
        assert left.tolist() == train[~near].tolist()


def test_a_block_is_compact(places):
    """Rows of two clusters on both sides of the 180th meridian are two folds of three."""
    X = pd.DataFrame({"latitude": [0.0] * 6, "longitude": [179.9, -179.9, 180, 0, 0.1, 359.9]})
    folds = [{*test} for _, test in SpatialKFold(2, n_blocks=2, random_state=0).split(X)]
    assert sorted(folds, key=min) == [{0, 1, 2}, {3, 4, 5}]


def test_arrays_frames_and_seeds(places):
    splits = [
        [test.tolist() for _, test in SpatialKFold(3, random_state=7, **options).split(X)]
        for X, options in (
            (places, {}),
            (places[["longitude", "latitude"]].to_numpy(), {"places": (1, 0)}),
            (places.to_numpy().tolist(), {"places": (0, 1)}),
        )
    ]
    assert splits[0] == splits[1] == splits[2]


def test_rows_without_a_place_are_tested_together(places):
    places.loc[[3, 70], "latitude"] = np.nan
    folds = [test for _, test in SpatialKFold(4, buffer=1e4, random_state=0).split(places)]
    assert [np.isin([3, 70], test).all() for test in folds].count(True) == 1


def test_scikit_learn_takes_it(places):
    y = np.arange(200.0)
    splitter = SpatialKFold(3, buffer=1e4, random_state=0)
    assert cross_val_score(Ridge(), places, y, cv=splitter).shape == (3,)
    search = GridSearchCV(Ridge(), {"alpha": [0.1, 10.0]}, cv=splitter).fit(places, y)
    assert search.n_splits_ == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_splits": 1}, "n_splits must be an integer of at least 2, got 1"),
        ({"n_blocks": 4}, "n_blocks must be an integer of at least 5, got 4"),
        ({"buffer": -1.0}, "buffer must be metres of at least 0, got -1.0"),
        ({"buffer": 1e7}, "buffer=10000000.0 leaves no training row"),
        ({"places": ("latitude", "lon")}, "places must be columns of X, got 'lon'"),
        ({"places": ("longitude", "latitude")}, "the latitude comes first, then the long"),
    ],
)
def test_errors_name_the_parameter(places, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        [*SpatialKFold(random_state=0, **options).split(places)]


def test_rows_without_a_place_are_one_block(places):
    places.loc[:9, "latitude"] = np.nan
    n_in_folds = [(test < 10).sum() for _, test in SpatialKFold(4, random_state=0).split(places)]
    assert sorted(n_in_folds) == [0, 0, 0, 10]


def test_the_seed_deals_blocks_to_folds(places):
    folds = [
        [test.tolist() for _, test in SpatialKFold(3, n_blocks=8, random_state=seed).split(places)]
        for seed in (0, 0, 1)
    ]
    assert folds[0] == folds[1]
    assert folds[0] != folds[2]


def test_too_few_places_are_named():
    X = pd.DataFrame({"latitude": [1.0, 2, 3] * 4, "longitude": [0.0] * 12})
    with pytest.raises(ValueError, match="places must be in at least n_splits=5 blocks, got 3"):
        next(SpatialKFold(5, random_state=0).split(X))
    with pytest.raises(ValueError, match="places must name a column of latitudes"):
        next(SpatialKFold(2, places={"latitude", "longitude"}).split(X))
