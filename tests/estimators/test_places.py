"""Coordinates: places on the sphere, blocks that are held out together, and what fit warns of."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import haversine_distances

import nona_sklearn
from nona_sklearn import NONARegressor, SoftStepKNeighborsRegressor, TableEncoder
from nona_sklearn.model_selection import SpatialKFold

EARTH_RADIUS = 6_371.0088  # kilometres
PLACES = "latitude", "longitude"


def table(latitude, longitude, **further):
    return pd.DataFrame({"latitude": latitude, "longitude": longitude, **further})


def encoded(X, **parameters):
    return TableEncoder(places=PLACES, **parameters).fit_transform(X)


def distances(rows):
    return np.linalg.norm(rows[:, None] - rows, axis=2)


def waves(n_rows=300, seed=0):
    """A smooth function of the places, with a little noise."""
    rng = np.random.default_rng(seed)
    X = table(
        rng.uniform(45, 53, n_rows), rng.uniform(5, 17, n_rows), area=rng.normal(size=n_rows)
    )
    y = np.sin(1.5 * X["latitude"]) * np.cos(X["longitude"]) + 0.1 * rng.normal(size=n_rows)
    return X, y.to_numpy()


def fitted(X, y, cls=SoftStepKNeighborsRegressor, **parameters):
    model = cls(max_iter=5, random_state=0, **parameters)
    return model.set_params(table_encoder__places=PLACES).fit(X, y)


# -- the encoding ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latitude", "longitude"),
    [
        ([52.0, 52.3, 52.1], [13.0, 13.4, 13.2]),
        ([-17.0, -17.2, -17.1], [179.9, -179.9, 180.1]),  # across the 180th meridian
        ([89.9, 89.8, 89.9], [0.0, 120.0, 240.0]),  # around a pole
    ],
)
def test_distances_in_a_region_are_those_of_great_circles(latitude, longitude):
    arcs = EARTH_RADIUS * haversine_distances(np.deg2rad(np.stack([latitude, longitude], axis=1)))
    np.testing.assert_allclose(distances(encoded(table(latitude, longitude))), arcs, rtol=1e-3)


def test_a_region_is_north_and_east_of_its_centre():
    encoder = TableEncoder(places=PLACES).set_output(transform="pandas")
    rows = encoder.fit_transform(table([0.0, 0.0, 1.0], [9.0, 11.0, 10.0]))
    assert [*rows.columns] == ["latitude_north", "longitude_east"]
    one_degree = EARTH_RADIUS * np.pi / 180
    np.testing.assert_allclose(rows["longitude_east"], [-one_degree, one_degree, 0], rtol=1e-3)
    np.testing.assert_allclose(np.ptp(rows["latitude_north"]), one_degree, rtol=1e-3)


def test_the_globe_is_in_space_and_a_pole_is_one_place():
    X = table([90.0, 90.0, -90.0, 0.0, 0.0], [0.0, 77.0, 0.0, 180.0, -180.0])
    encoder = TableEncoder(places=PLACES)
    rows = encoder.fit_transform(X)
    assert [*encoder.get_feature_names_out()] == ["latitude_z", "longitude_x", "longitude_y"]
    apart = distances(rows) / EARTH_RADIUS
    assert apart[0, 1] == apart[3, 4] == 0
    np.testing.assert_allclose([apart[0, 2], apart[0, 3]], [2, 2**0.5])


def test_places_on_one_meridian_are_constant_in_the_east():
    assert np.ptp(encoded(table(np.linspace(40, 50, 11), np.full(11, 7.3)))[:, 1]) == 0


def test_a_missing_coordinate_makes_the_place_missing():
    X = table([40.0, 41.0, 44.0, np.nan], [5.0, 5.0, 5.0, 6.0], area=[1.0, 2.0, 3.0, 4.0])
    rows = encoded(X)
    assert rows[3, :2].tolist() == np.median(rows[:3, :2], axis=0).tolist()
    assert rows[:, -2:].tolist() == [[0, 0]] * 3 + [[1, 1]]  # marked for both columns


def test_numbers_name_the_columns_of_an_array():
    X, _ = waves(20)
    by_name = encoded(X)
    by_number = TableEncoder(places=(0, 1)).fit_transform(X.to_numpy())
    assert (by_name == by_number).all()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (("latitude",), "a column of latitudes and one of longitudes, got ('latitude',)"),
        (("latitude", "latitude"), "a column of latitudes and one of longitudes"),
        (("latitude", "lon"), "places must be columns of X, got 'lon'"),
        (("longitude", "latitude"), "the latitude comes first, then the longitude, got 'long"),
        (("height", "latitude"), "from -90 to 90 in column 'height', got 95"),
        (("latitude", "town"), "column 'town' holds strings, such as 'a'"),
    ],
)
def test_wrong_places_are_refused(places, message):
    X = table([45.0, 46.0], [95.0, 6.0], town=["a", "b"], height=[95.0, 6.0])
    with pytest.raises(ValueError, match=re.escape(message)):
        NONARegressor(table_encoder=TableEncoder(places=places)).fit(X, [1.0, 2.0])


def test_later_places_are_checked():
    X, y = waves(40)
    model = fitted(X, y)
    with pytest.raises(ValueError, match=r"from -90 to 90 in column 'latitude', got 90\.5"):
        model.predict(X[:2].assign(latitude=[45, 90.5]))


def test_a_pickle_without_places_has_none():
    encoder = TableEncoder()
    state = encoder.__getstate__()
    del state["places"]
    older = TableEncoder.__new__(TableEncoder)
    older.__setstate__(state)
    assert older.places is None
    assert pickle.loads(pickle.dumps(encoder)).places is None


# -- estimators --------------------------------------------------------------------------------


def test_predictions_do_not_depend_on_where_longitudes_begin():
    X, y = waves(120)
    turned = X.assign(longitude=X["longitude"] + 170)  # across the 180th meridian
    wrapped = turned.assign(longitude=(turned["longitude"] + 180) % 360 - 180)
    assert wrapped["longitude"].min() < -170
    predictions = [fitted(rows, y).predict(rows) for rows in (turned, wrapped)]
    np.testing.assert_allclose(*predictions, rtol=1e-3, atol=1e-3)


def test_blocks_of_places_are_validated_together():
    X, y = waves(150)
    model = fitted(X, y, cls=NONARegressor, n_estimators=2)
    blocks = model.bank_.groups.numpy()
    assert len(np.unique(blocks)) == 12
    for rows in model.validation_indices_:
        beside = np.setdiff1d(np.arange(len(X)), rows)
        assert not {*blocks[rows]} & {*blocks[beside]}


def test_given_groups_are_validated_instead():
    X, y = waves(60)
    model = SoftStepKNeighborsRegressor(max_iter=2, table_encoder=TableEncoder(places=PLACES))
    assert len(np.unique(model.fit(X, y, groups=np.arange(60) % 5).bank_.groups)) == 5


def test_a_splitter_with_a_buffer_validates():
    X, y = waves(60)
    splitter = SpatialKFold(3, buffer=50_000, random_state=1)
    model = fitted(X, y, cls=NONARegressor, validation_fraction=splitter, n_estimators=2)
    expected = [set(test) for _, test in splitter.split(X)][-2:]
    assert [set(rows) for rows in model.validation_indices_] == expected


def test_added_rows_join_the_blocks_of_their_places():
    X, y = waves(100)
    model = fitted(X, y)
    model.add_neighbors(X, y)
    blocks = model.bank_.groups.numpy()
    assert (blocks[:100] == blocks[100:]).all()


def test_files_keep_places(tmp_path):
    X, y = waves(60)
    model = fitted(X, y)
    nona_sklearn.save(model, tmp_path / "model.nona")
    loaded = nona_sklearn.load(tmp_path / "model.nona")
    assert (loaded.predict(X) == model.predict(X)).all()
    loaded.add_neighbors(X, y)
    assert len(loaded.bank_.groups.unique()) == 12


def test_attributions_are_of_the_columns_as_given():
    X, y = waves(80)
    attributions = fitted(X, y).attribute(X[:2], X)
    assert {"latitude", "longitude", "area"} <= {*attributions.columns}


def test_places_have_no_graph(tmp_path):
    X, y = waves(40)
    with pytest.raises(ValueError, match="places must be None for an ONNX graph"):
        nona_sklearn.export_onnx(fitted(X, y), tmp_path / "model.onnx")


def test_sparse_rows_have_no_places():
    model = SoftStepKNeighborsRegressor(table_encoder=TableEncoder(places=(0, 1)))
    with pytest.raises(ValueError, match=re.escape("places must be None where X is sparse")):
        model.fit(csr_array(np.eye(4)), np.arange(4.0))


# -- the warning -------------------------------------------------------------------------------


def warnings_of(X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small = {"n_estimators": 2, "max_iter": 15, "hidden_layer_sizes": (16,)}
        NONARegressor(**small, random_state=0).fit(X, y)
    return [str(each.message) for each in caught if "near places" in str(each.message)]


def test_fit_warns_where_near_places_predict_each_other():
    X, y = waves(400)
    (message,) = warnings_of(X.rename(columns={"latitude": "Lat", "longitude": "lng"}), y)
    assert "table_encoder__places=('Lat', 'lng')" in message
    assert warnings_of(X.set_axis(["first", "second", "area"], axis=1), y) == []


def test_fit_does_not_warn_without_an_effect_of_the_place():
    X, _ = waves(400)
    noise = np.random.default_rng(1).normal(size=400)
    assert warnings_of(X, X["area"] ** 2 + 0.3 * noise) == []


def test_folds_take_a_latitude_and_then_a_longitude():
    X, _ = waves(60)
    with pytest.raises(ValueError, match="the latitude comes first"):
        next(SpatialKFold(2, places=("longitude", "latitude")).split(X))


@pytest.mark.parametrize("value", [np.nan, 50.0])
def test_one_place_has_no_blocks(value):
    X, y = waves(60)
    encoder = TableEncoder(places=("latitude", "longitude"))
    with pytest.raises(ValueError, match="places must hold at least 2 different ones"):
        NONARegressor(table_encoder=encoder).fit(X.assign(latitude=value, longitude=value), y)
