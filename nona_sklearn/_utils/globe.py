"""Places on a globe: their vectors, distances and blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

EARTH_RADIUS = 6_371_008.8  # metres, the mean radius
N_BLOCKS = 12  # blocks of places that fit holds out together
LIMITS = 90, 360  # degrees of latitude and longitude
#: Names of columns of coordinates, in lower case.
COORDINATES = ("latitude", "lat"), ("longitude", "lon", "lng", "long")


def check_degrees(column: Any, values: np.ndarray, limit: int, name: str) -> None:
    """Raise if a latitude or longitude in a column is beyond a limit; NaN is not."""
    if len(beyond := values[abs(values) > limit]):
        raise ValueError(
            f"{name} needs degrees from {-limit} to {limit} in column {column!r}, got "
            f"{beyond[0]:g}"
        )


def check_order(latitude: Any, longitude: Any) -> None:
    """Raise if the names of two columns are those of a longitude and a latitude."""
    pairs = zip((latitude, longitude), reversed(COORDINATES), strict=True)
    if all(str(name).lower() in names for name, names in pairs):
        raise ValueError(
            f"the latitude comes first, then the longitude, got {latitude!r} and {longitude!r}"
        )


def on_globe(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Return places in degrees as vectors (n, 3) of length 1."""
    latitude, longitude = np.deg2rad(latitude), np.deg2rad(longitude)
    ring = np.cos(latitude)
    vectors = ring * np.cos(longitude), ring * np.sin(longitude), np.sin(latitude)
    return np.stack(vectors, axis=1)


def read_places(columns: Sequence[Any], degrees: Sequence[np.ndarray]) -> np.ndarray:
    """Return checked latitudes and longitudes of two columns as vectors (n, 3), NaN for gaps."""
    check_order(*columns)
    for column, values, limit in zip(columns, degrees, LIMITS, strict=True):
        check_degrees(column, values, limit, "places")
    return on_globe(*degrees)


def chord(metres: float) -> float:
    """Return the distance through a globe of radius 1 of places so far apart along an arc.

    A chord grows with its arc, and takes no trigonometry for a pair of places.
    """
    return 2 * math.sin(min(metres / EARTH_RADIUS, math.pi) / 2)


def great_circle(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return distances in metres of pairs of places in degrees, (m, 2), as (m,)."""
    chords = np.linalg.norm(on_globe(*start.T) - on_globe(*end.T), axis=1)
    return 2 * EARTH_RADIUS * np.arcsin(np.minimum(chords / 2, 1))


def block_centers(vectors: np.ndarray, n_blocks: int, random_state: Any = 0) -> np.ndarray:
    """Return the centres (k, 3) of compact blocks of places (n, 3), as many as can differ."""
    places = vectors[~np.isnan(vectors).any(axis=1)]
    n_blocks = min(n_blocks, len(np.unique(places, axis=0)))
    if not n_blocks:
        return places
    return KMeans(n_blocks, n_init=1, random_state=random_state).fit(places).cluster_centers_


def blocks_of(vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the numbers (n,) of the nearest centres of places (n, 3), -1 for a missing place."""
    blocks = np.full(len(vectors), -1)
    known = ~np.isnan(vectors).any(axis=1)
    if len(centers):
        blocks[known] = cdist(vectors[known], centers).argmin(axis=1)
    return blocks
