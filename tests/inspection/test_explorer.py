"""A page to look around in: what it holds, and how it behaves in a browser."""

import base64
import io
import re
import shutil
import time
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from flats import make_flats
from inner.inspection import (
    MOST_BARS,
    Appearance,
    Effects,
    OutputAnswers,
    Unit,
    _effects,
    _lines,
    _page,
    _palette,
    _query_targets,
    _rows,
    collect_map_data,
    render,
    share,
    show_value,
)
from pages import policy_of, read_html, text_of
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    EffectDisplay,
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    explore,
    unwrap,
)

try:
    from selenium import webdriver
    from selenium.webdriver.common.actions.action_builder import ActionBuilder
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait
except ImportError:
    webdriver = None

needs_browser = pytest.mark.skipif(
    webdriver is None or shutil.which("chromedriver") is None, reason="no browser to be driven"
)
QUICK = {"n_estimators": 1, "max_iter": 15, "random_state": 0}
EVIL = '</script><script>window.evil = "&lt;"</script>'


@pytest.fixture(scope="module")
def flats():
    """A raw table of 150 flats with rents, and 10 more flats."""
    X, y = make_flats(160, EVIL)
    X.iloc[7], y.iloc[7] = X.iloc[3], y.iloc[3] + 500  # equal rows, of which one is wrong
    return X[:150], y[:150].rename("rent"), X[150:], y[150:]


@pytest.fixture(scope="module")
def regressor(flats):
    X, y, _, _ = flats
    return NONARegressor(**QUICK).fit(X, y)


@pytest.fixture(scope="module")
def classifier(flats):
    X, y, _, _ = flats
    return NONAClassifier(**QUICK).fit(X, np.where(y > 900, "dear", "cheap"))


def explored(model, X=None, y=None, features=None, **options):
    """What a page shows."""
    answers = OutputAnswers.of_only("explore", unwrap(model))
    options = {"n_neighbors": 4, "confidence": 0.9, "max_rows": 10_000} | options
    targets = _query_targets(answers, y, 0 if X is None else len(X))
    queries = None if X is None else answers.model.embed(X)
    look = Appearance.of(answers.model.estimator, features, X, len(targets))
    return collect_map_data(answers, queries, targets, look, **options)


@pytest.mark.slow
def test_predictions_are_those_of_the_model_and_stored_rows_are_left_out(flats, regressor):
    X, y, queries, truth = flats
    found = explored(regressor, queries, truth, X)
    own, weights = regressor.predict(None), regressor.neighbor_weights(None).toarray()
    expected = np.concatenate([own, regressor.predict(queries)])
    np.testing.assert_allclose(found.predictions.predictions, expected, rtol=1e-6)
    np.testing.assert_allclose(found.predictions.errors, expected - np.concatenate([y, truth]))
    ends = regressor.predict_quantiles(queries, [0.05, 0.95])
    np.testing.assert_allclose(found.predictions.details[150:], ends)
    assert [*found.names] == [*X.index, *queries.index]
    weights = np.concatenate([weights, regressor.neighbor_weights(queries).toarray()])
    heaviest = -np.sort(-weights, axis=1)[:, :4]
    np.testing.assert_allclose(found.predictions.weights, heaviest, atol=1e-6)
    np.testing.assert_allclose(
        np.take_along_axis(weights, found.predictions.positions, axis=1), heaviest, atol=1e-6
    )
    assert [*found.columns["district"]] == [*X.district, *queries.district]


def test_columns_in_which_rows_differ_are_those_of_the_explanation(flats, regressor):
    X, _, queries, _ = flats
    found = explored(regressor, queries, None, X)
    table = regressor.explain(queries, 4, features=X)
    names = [*found.columns]
    for i, name in enumerate(queries.index):
        lines = table[(table["query"] == name) & table["neighbor"].isin(X.index)]
        for position, differs, expected in zip(
            found.predictions.positions[150 + i],
            found.predictions.differs[150 + i],
            lines["differs"],
            strict=False,
        ):
            assert found.names[position] in set(lines["neighbor"])
            assert ", ".join(names[j] for j in differs if j < len(names)) == expected


def test_rows_behind_predictions_are_on_the_map(flats, regressor):
    X, _, queries, _ = flats
    found = explored(regressor, queries, max_rows=30, random_state=0)
    assert 30 <= len(found.names) < 160
    answers = found.predictions
    heaviest = -np.sort(-regressor.neighbor_weights(queries).toarray(), axis=1)[:, :4]
    np.testing.assert_allclose(answers.weights[-10:], heaviest, atol=1e-6)
    shown = [*X.index].index(found.names[0])
    expected = -np.sort(-regressor.neighbor_weights(None).toarray()[shown])[:4]
    np.testing.assert_allclose(answers.weights[0], expected, atol=1e-6)
    last = found.n_stored - 1  # behind a stored row: its own rows may not be on the map
    hidden = answers.positions[last] < 0
    assert (answers.weights[last][hidden] == 0).all()
    assert (answers.positions < found.n_stored).all()


def test_classes(flats, classifier):
    X, _, queries, truth = flats
    labels = np.where(truth > 900, "dear", "cheap").astype(object)
    labels[0] = "unseen"
    found = explored(classifier, queries, labels, X)
    own = classifier.predict(None)
    assert [*found.predictions.predictions] == [*own, *classifier.predict(queries)]
    np.testing.assert_allclose(found.predictions.details[150:], classifier.predict_proba(queries))
    assert [*found.classes] == ["cheap", "dear", "unseen"]
    assert found.predictions.errors[150] == 1
    assert found.surprises.rows[0] == 150
    unlikely = found.predictions.predictions != found.targets
    assert unlikely[found.surprises.rows].all()
    unknown = explored(classifier, queries, None, X)
    assert np.isnan(unknown.predictions.errors[150:]).all()
    assert (unknown.surprises.rows < 150).all()


def test_wrong_targets_and_equal_rows_are_listed(flats, regressor):
    found = explored(regressor, features=flats[0])
    assert len(found.names) == found.n_stored == 150
    assert found.surprises.rows[0] in (3, 7)
    mean, std = regressor.predict(None, return_std=True)
    distances = abs(found.targets - mean) / std
    np.testing.assert_allclose(found.predictions.surprises, distances)
    n_rows = len(found.surprises.rows)
    np.testing.assert_array_equal(found.surprises.rows, np.argsort(-distances)[:n_rows])
    assert [[*rows] for rows in found.groups_of_equals] == [[3, 7]]


def test_a_row_of_gaps_is_no_error(flats, regressor):
    X = flats[0].copy()
    first = explored(regressor, features=X).surprises.rows[0]
    X.iloc[first, 1:] = None  # more features are missing than known
    found = explored(regressor, features=X)
    assert found.incomplete.nonzero()[0].tolist() == [first]
    assert first not in found.surprises.rows


def test_equal_rows_are_listed_with_their_features(flats, regressor):
    X, _, _, _ = flats
    tree = read_html(explore(regressor, features=X)._page)
    _, equal = tree.iter("details")
    buttons = [button.get("data-row") for button in equal.iter("button")]
    assert buttons == ["3", "7"]
    (features,) = equal.iter("div")
    assert f"floor: {show_value(X.floor.iloc[3])}" in text_of(features)
    assert f"district: {X.district.iloc[3]}" in text_of(features)


@pytest.mark.slow
def test_queries_are_drawn_last_and_stored_rows_can_be_hidden(flats, regressor):
    X, _, queries, truth = flats
    found = explored(regressor, queries, truth, X)
    sizes = _rows(found)["size"]
    assert sizes[150:].min() > sizes[:150].max()
    assert 'id="stored"' in explore(regressor, queries)._page
    assert 'id="stored"' not in explore(regressor)._page


def test_gaps_of_targets_are_not_known(flats, classifier, regressor):
    X, _, queries, truth = flats
    labels = pd.Series(np.where(truth > 900, "dear", "cheap"), dtype=object)
    for gap in (None, np.nan, pd.NA):
        given = labels.copy()
        given[:4] = gap
        targets = _query_targets(OutputAnswers.of_only("explore", unwrap(classifier)), given, 10)
        assert [target is None for target in targets] == [True] * 4 + [False] * 6
    found = explored(regressor, queries, [np.nan] * 4 + [*truth[4:]], X)
    assert np.isnan(found.predictions.errors[150:154]).all()
    assert not set(found.surprises.rows) & {150, 151, 152, 153}


def test_rounding_is_no_contradiction(flats):
    X, _, _, _ = flats
    reg = NONARegressor(**QUICK | {"max_iter": 2}).fit(X, np.full(150, 1 / 3))
    assert len(explored(reg).surprises.rows) == 0


def test_of_two_stored_rows_a_query_has_both(flats, regressor):
    two = deepcopy(regressor).remove_neighbors(ids=[*range(2, 150)])
    found = explored(two, flats[2])
    assert (found.predictions.positions[:2] == [[1, -1, -1, -1], [0, -1, -1, -1]])[:, 0].all()
    weights = two.neighbor_weights(flats[2]).toarray()
    np.testing.assert_allclose(found.predictions.weights[2:].sum(axis=1), weights.sum(axis=1))


@pytest.mark.slow
def test_equal_rows_whose_targets_differ_most_come_first(flats):
    X, y, _, _ = flats
    X, y = X.copy(), y.copy()
    for one, other, step in [(10, 11, 5), (20, 21, 300), (30, 31, 0)]:
        X.iloc[other], y.iloc[other] = X.iloc[one], y.iloc[one] + step
    reg = NONARegressor(**QUICK).fit(X, y)
    assert [[*rows] for rows in explored(reg).groups_of_equals] == [
        [3, 7],
        [20, 21],
        [10, 11],
        [30, 31],
    ]
    clf = NONAClassifier(**QUICK).fit(X, np.where(np.arange(150) == 20, "odd", "even"))
    assert [*explored(clf).groups_of_equals[0]] == [20, 21]


@pytest.mark.slow
def test_of_many_columns_those_that_differ_are_shown(monkeypatch, flats):
    X, y, queries, truth = flats
    monkeypatch.setattr("inner.inspection.explorer.MOST_MAP_COLUMNS", 4)
    table, more = X.assign(same=1.0)[["same", *X.columns]], queries.assign(same=1.0)
    found = explored(NONARegressor(**QUICK).fit(table, y), more, truth, table)
    assert [*found.columns] == [*X.columns]
    np.testing.assert_array_equal(found.columns["floor"][150:], queries["floor"])


def test_lists_have_their_numbers(flats, monkeypatch, regressor):
    X, _, _, _ = flats
    found = explored(regressor, features=X)
    found.predictions.surprises[[5, 8, 9]] = 99.0
    n_rows = len(found.surprises.rows)
    assert n_rows > 2
    assert f"Targets to check ({n_rows})" in _page(found, "", 0.9, "")
    monkeypatch.setattr("inner.inspection.explorer.MOST_LISTED", 2)
    listed, _ = read_html(_page(found, "", 0.9, "")).iter("details")
    assert f"Targets to check (the first 2 of {n_rows})" in text_of(listed)
    assert "expected by chance" in text_of(listed)
    assert len([*listed.iter("button")]) == 2
    assert [len({*_palette(n)}) for n in (2, 10, 20, 30)] == [2, 10, 20, 30]


def test_columns_of_the_page(flats, regressor, classifier):
    X, y, queries, truth = flats
    found = explored(regressor, queries, truth, X)
    rows, lines = _rows(found), _lines(found)
    predictions = np.concatenate([regressor.predict(None), regressor.predict(queries)])
    np.testing.assert_allclose(rows["prediction"], predictions, rtol=1e-6)
    np.testing.assert_array_equal(rows["target"], [*y, *truth])
    np.testing.assert_allclose(rows["error"], abs(predictions - [*y, *truth]))
    ends = regressor.predict_quantiles(queries, [0.05, 0.95]).T
    np.testing.assert_allclose([rows["low"][150:], rows["high"][150:]], ends)
    assert rows["marker"] == ["circle"] * 150 + ["diamond"] * 10
    table = regressor.explain(queries, 4)
    table = table[table["neighbor"].isin(X.index)]
    own = lines["row"].reshape(-1, 4)[150:]
    np.testing.assert_array_equal(found.names[own[own >= 0]], table["neighbor"])
    adjusted = lines["adjusted"].reshape(-1, 4)[150:][own >= 0]
    np.testing.assert_allclose(adjusted, table["adjusted_target"], rtol=1e-6)
    chances = _rows(explored(classifier, queries))["chances"][150:]
    for text, probability in zip(chances, classifier.predict_proba(queries), strict=True):
        assert text.startswith(f"{classifier.classes_[probability.argmax()]}: ")


# -- the table of the report -------------------------------------------------------------------


def table_of(report):
    """The lines of a report's table, by their names."""
    tables = read_html(report._repr_html_()).iter("table")
    (table,) = [each for each in tables if each.findtext("caption").startswith("The query and")]
    lines = [["".join(cell.itertext()) for cell in line] for line in table.iter("tr")]
    return {name: cells for name, *cells in lines}


def amount_of(text):
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def assert_same_amounts(texts, values, place):
    """Amounts of a report are those of a page, to a place."""
    for text, value in zip(texts, values, strict=True):
        assert amount_of(text) == pytest.approx(value, abs=0.51 * 10.0**-place)


def assert_same_rows(found, row, lines):
    """A page lists the rows of a report's table, with their weights and marks; returns them."""
    answers = found.predictions
    behind = np.flatnonzero(answers.weights[row])
    positions = answers.positions[row, behind]
    others = [] if np.isnan(answers.remainder[row, 0]) else ["others"]
    assert lines[""] == [found.names[row], *found.names[positions], *others]
    weights = [*answers.weights[row, behind], *answers.remainder[row, : len(others)]]
    assert lines["weight"] == ["", *map(share, weights)]
    for j, name in enumerate(found.columns):
        shown = [show_value(found.columns[name][each]) for each in (row, *positions)]
        marks = [" (differs)" * (j in answers.differs[row, i]) for i in behind]
        texts = [text + mark for text, mark in zip(shown, ["", *marks], strict=True)]
        assert lines[name] == texts + [""] * len(others)
    return positions, behind


@pytest.mark.parametrize("scale", [1, 997])
def test_the_table_is_that_of_the_report(flats, scale):
    X, y, queries, truth = flats
    regressor = NONARegressor(**QUICK).fit(X, scale * y)
    found = explored(regressor, queries, scale * truth, X)
    some_others = False
    for i in range(3):
        row, report = 150 + i, NeighborsReport(regressor, queries[i : i + 1], X, n_neighbors=4)
        lines, answers = table_of(report), found.predictions
        positions, behind = assert_same_rows(found, row, lines)
        others = answers.remainder[row][~np.isnan(answers.remainder[row])]  # weight, target, ...
        weights, adjusted = answers.weights[row, behind], answers.adjusted[row, behind]
        decimals, place = found.unit.decimals, found.decimals[row]
        n_rows = len(positions)
        assert_same_amounts(lines["rent"][1 : 1 + n_rows], found.targets[positions], decimals)
        assert_same_amounts(lines["rent"][1 + n_rows :], others[1:2], place)
        assert_same_amounts(lines["adjusted to the query"][1:], [*adjusted, *others[2:3]], place)
        contributions = [answers.predictions[row], *weights * adjusted, *others[3:]]
        assert_same_amounts(lines["contribution"], contributions, place)
        assert Unit(place=place).rounded(answers.predictions[row]) == lines["contribution"][0]
        names = [*found.columns]
        assert [*lines][-len(names) :] == [names[j] for j in found.column_order[row]]
        some_others |= len(others) > 0
    assert some_others


def test_the_table_of_a_stored_row_is_that_of_its_report(flats, regressor):
    X, _, _, _ = flats
    found = explored(regressor, features=X)
    lines = table_of(NeighborsReport(regressor, row=X.index[5], features=X, n_neighbors=4))
    assert_same_rows(found, 5, lines)
    assert [*lines][-4:] == [[*found.columns][j] for j in found.column_order[5]]


def test_the_table_of_classes_is_that_of_the_report(flats, classifier):
    X, _, queries, _ = flats
    found = explored(classifier, queries, None, X)
    lines = table_of(NeighborsReport(classifier, queries[:1], X, n_neighbors=4))
    positions, _ = assert_same_rows(found, 150, lines)
    assert lines["target"][1 : 1 + len(positions)] == [*found.targets[positions]]


def test_rows_that_are_not_on_the_map_are_among_the_others(flats, regressor):
    answers = explored(regressor, flats[2], max_rows=30, random_state=0).predictions
    whole = answers.weights.sum(axis=1) + np.nan_to_num(answers.remainder[:, 0])
    np.testing.assert_allclose(whole, 1)
    hidden = (answers.positions < 0) & (answers.weights == 0)
    assert hidden.any()
    assert np.isnan(answers.remainder[hidden.any(axis=1), 1]).all()  # the rest is not known


# -- effects -----------------------------------------------------------------------------------


def test_effects_are_those_that_predictions_have(flats, regressor):
    X, _, queries, _ = flats
    effects = explored(regressor, queries, None, X).effects
    parts = regressor.attribute(None, of="predictions")
    sizes = parts[[*X.columns]].abs().mean().sort_values(ascending=False)
    assert [each.feature_name for each in effects.displays] == [*sizes.index[sizes > 0]]
    assert effects.together == pytest.approx(parts["interplay"].var() / parts["prediction"].var())
    for display in effects.displays:
        expected = EffectDisplay.from_estimator(regressor, X, display.feature_name)
        np.testing.assert_array_equal(display.values, expected.values)
        np.testing.assert_allclose(display.effects, expected.effects, rtol=1e-9)


def test_charts_of_effects_have_their_amounts(flats, regressor):
    X, _, _, _ = flats
    effects = explored(regressor, features=X).effects
    html = render("effects.html", **_effects(effects), unit=Unit(0, -1), target_name="rent")
    assert EVIL not in html
    section = read_html(html).find("section")
    text = text_of(section.find("p"))
    assert "adds to the predicted rent" in text
    assert f"{share(effects.together)} of the variance" in text
    charts = {"".join(each.find("figcaption").itertext()): each for each in section.iter("figure")}
    assert {*charts} == {each.feature_name for each in effects.displays}
    (bars,) = [each for each in effects.displays if each.feature_name == "district"]
    widths = [float(each.get("width")) for each in charts["district"].iter("rect")]
    assert widths == pytest.approx(
        abs(bars.effects[::-1]) * max(widths) / abs(bars.effects).max(), abs=0.2
    )
    (area,) = [each for each in effects.displays if each.feature_name == "area <m²>"]
    chart = charts["area <m²>"]
    texts = [each for each in chart.iter("text") if each.get("class") == "name"]
    marks = {amount_of(each.text): float(each.get("y")) for each in texts}
    curve = [point.split(",") for point in chart.find("svg/polyline").get("points").split()]
    slope, start = np.polyfit([*marks], [*marks.values()], 1)
    heights = [float(curve[i][1]) for i in (0, -1)]
    np.testing.assert_allclose(heights, start + slope * area.effects[[0, -1]], atol=0.2)
    every = np.concatenate([each.effects for each in effects.displays])
    ends = re.fullmatch(r"area <m²>: from (\S+) at .* to (\S+) at .*", chart[1].get("aria-label"))
    for text, effect in zip(
        ends.groups(), sorted(area.effects)[:: len(area.effects) - 1], strict=True
    ):
        assert amount_of(text) % 10 == 0  # rounded to tens
        assert amount_of(text) == pytest.approx(effect, abs=5.1)
    step = max(marks) / max(1, sum(mark > 0 for mark in marks))
    assert min(marks) - step < every.min() < every.max() < max(marks) + step


def test_of_many_categories_the_lowest_and_the_highest_are_drawn():
    parts = np.column_stack([np.arange(20.0), np.zeros(20)])
    names = np.array([f"level {i}" for i in range(20)], dtype=object)
    effects = Effects.of([("kind", names)], parts, "rent")
    html = render("effects.html", **_effects(effects), unit=Unit(0, 0), target_name="rent")
    texts = [each.text for each in read_html(html).iter("text")]
    assert [f"level {i}" in texts for i in (0, 3, 4, 15, 16, 19)] == [True] * 2 + [False] * 2 + [
        True
    ] * 2
    assert f"{20 - MOST_BARS} others" in texts
    assert Effects.of([("kind", names)], 0 * parts, "rent") is None


def test_models_without_an_additive_part_have_no_effects(flats, regressor, classifier):
    X, y, _, _ = flats
    quick = QUICK | {"max_iter": 2}
    numbers = X[["area <m²>"]]
    scaled = make_pipeline(StandardScaler(), NONARegressor(**quick)).fit(numbers, y)
    logarithms = TransformedTargetRegressor(
        NONARegressor(**quick), func=np.log, inverse_func=np.exp
    )
    for model, features in [
        (classifier, X),
        (NONARegressor(**quick, similarity="l2").fit(X, y), X),
        (scaled, numbers),
        (logarithms.fit(X, y), X),
        (regressor, None),
        (regressor, X.add_prefix("raw ")),
    ]:
        assert explored(model, features=features).effects is None
    assert "Effects</h2>" in explore(regressor, features=X)._page
    assert "Effects</h2>" not in explore(classifier, features=X)._page


def test_pictures_and_texts_are_those_of_their_rows(regressor):
    bank = deepcopy(regressor).remove_neighbors(ids=[0, 2]).bank_
    texts = [f"text {i}" for i in range(150)]
    shown = Appearance.of(SimpleNamespace(bank_=bank), texts, None).shown(
        np.arange(3), np.arange(0)
    )["text"]
    assert [*shown] == ["text 1", "text 3", "text 4"]
    images = np.zeros((150, 3, 4, 5), dtype=np.int8)  # torch's order of axes
    images[3, 0], images[4, :, 0, 1] = 127, -128
    pictures = Appearance.of(SimpleNamespace(bank_=bank), images, None).shown(
        np.arange(3), np.arange(0)
    )["picture"]
    pixels = [_pixels(picture) for picture in pictures]
    assert [each.shape for each in pixels] == [(4, 5, 3)] * 3
    assert pixels[1][0, 0].tolist() == [255, 128, 128]
    assert pixels[2][0, :2].tolist() == [[128] * 3, [0] * 3]
    mask = np.zeros((150, 2, 2), dtype=bool)
    mask[1, 0, 1] = True
    picture = Appearance.of(SimpleNamespace(bank_=bank), mask, None).shown(
        np.arange(1), np.arange(0)
    )["picture"][0]
    assert _pixels(picture).tolist() == [[0, 255], [0, 0]]
    with pytest.raises(ValueError, match="images of 1, 3 or 4 channels, got"):
        Appearance.of(SimpleNamespace(bank_=bank), np.zeros((150, 5, 5, 5)), None).shown(
            np.arange(1), np.arange(0)
        )


def _pixels(picture):
    """The numbers of a picture that is an address."""
    from PIL import Image

    data = base64.b64decode(picture.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.slow
def test_models_around_an_estimator(flats):
    X, y, queries, truth = flats
    inner = make_pipeline(StandardScaler(), NONARegressor(**QUICK | {"max_iter": 2}))
    numbers = X[["area <m²>"]], queries[["area <m²>"]]
    model = TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp)
    model.fit(numbers[0], y)
    found = explored(model, numbers[1], truth, numbers[0])
    np.testing.assert_allclose(found.predictions.predictions[150:], model.predict(numbers[1]))
    page = explore(model, numbers[1], truth, features=numbers[0])
    assert page.title == "Predictions of target: 150 stored rows and 10 queries"


@pytest.mark.slow
def test_images_and_texts(flats):
    digits = load_digits()
    X, y, images = digits.data[:60], digits.target[:60], digits.images
    clf = NONAClassifier(**QUICK | {"max_iter": 2}).fit(X[:50], y[:50])
    bank = clf.bank_
    found = explored(clf, X[50:], y[50:])
    assert found.columns == {}
    look = Appearance.of(SimpleNamespace(bank_=bank), images[:50], images[50:60], 10)
    pictures = look.shown(np.arange(50), np.arange(0))["picture"]
    assert len(pictures) == 60
    assert all(picture.startswith("data:image/png;base64,") for picture in pictures)
    assert len({*pictures}) == 60
    colored = np.stack([images[:50]] * 3, axis=1)  # torch's order of axes
    assert (
        len(
            Appearance.of(SimpleNamespace(bank_=bank), colored, None).shown(
                np.arange(2), np.arange(0)
            )["picture"]
        )
        == 2
    )
    texts = ["long " * 100, *(f"text {i}" for i in range(1, 50))]
    shown = Appearance.of(SimpleNamespace(bank_=bank), texts, None).shown(
        np.arange(50), np.arange(0)
    )["text"]
    assert shown[1] == "text 1"
    assert len(shown[0]) == 201
    page = explore(clf, X[50:], features=images[:50], query_features=images[50:60])
    assert "2 text" not in page.title


def test_the_page_needs_no_other_file_and_texts_are_escaped(flats, regressor, tmp_path):
    X, _, queries, truth = flats
    page = explore(regressor, queries, truth, features=X)
    page.save(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    tree = read_html(html)
    assert not any({"src", "href"} & element.attrib.keys() for element in tree.iter())
    assert EVIL not in html
    assert f"<h1><bdi>{page.title}</bdi></h1>" in html  # no name turns the text around it
    assert policy_of(html).startswith("default-src 'none';")
    assert "http" not in policy_of(html)  # Bokeh names a network that cannot be reached
    plain = read_html(explore(regressor)._page)
    assert len([*tree.iter("script")]) == len([*plain.iter("script")])
    (frame,) = read_html(page._repr_html_())
    assert frame.tag == "iframe"
    assert frame.get("srcdoc") == html
    with pytest.raises(FileExistsError, match="overwrite=True"):
        page.save(tmp_path / "page.html")


def test_bad_input_is_refused(flats, regressor, classifier):
    X, y, queries, truth = flats
    for options, message in [
        ({"y": truth}, "y needs X, got it alone"),
        ({"query_features": X}, "query_features needs X"),
        ({"X": queries, "query_features": queries}, "query_features needs features"),
        (
            {"X": queries, "features": X, "query_features": X},
            "query_features must have a row for each of 10 queries, got 150",
        ),
        ({"X": queries, "y": [np.inf] * 10}, "y must be finite, or NaN .* got inf"),
        ({"confidence": 0}, "confidence must be between 0 and 1, got 0"),
        ({"n_neighbors": 0}, "n_neighbors must be a positive integer, got 0"),
        ({"max_rows": 1}, "max_rows must be an integer of at least 2, got 1"),
        ({"X": queries, "y": truth[:3]}, "inconsistent numbers of samples"),
        ({"X": queries, "y": ["a"] * 10}, "could not convert string to float"),
        ({"features": X[:20]}, "features must have"),
        ({"X": queries, "features": ["a"] * 150}, "must be of one kind, got texts and a table"),
        ({"X": queries.drop(columns="floor")}, "columns are missing|missing"),
    ]:
        with pytest.raises(ValueError, match=message):
            explore(regressor, **options)
    both = NONARegressor(**QUICK | {"max_iter": 2}).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="explore needs a model of one output, got several"):
        explore(both)
    with pytest.raises(TypeError, match="estimator must be"):
        explore(StandardScaler())
    for reducer in ("pca", PCA):
        with pytest.raises(TypeError, match="reducer must be a transformer"):
            explore(regressor, reducer=reducer)
    alone = deepcopy(regressor).remove_neighbors(ids=[*range(1, 150)])
    with pytest.raises(ValueError, match="the bank must have at least 2 rows"):
        explore(alone)


# -- in a browser ------------------------------------------------------------------------------

#: Where a row is on the screen.
PLACE = """
const view = [...Bokeh.index][0], {data} = Bokeh.documents[0].get_model_by_name("rows")
const {x_scale, y_scale} = view.frame, box = view.el.getBoundingClientRect()
const [x, y] = [data.x[arguments[0]], data.y[arguments[0]]]
return [box.x + x_scale.compute(x), box.y + y_scale.compute(y)]
"""
READY = "return window.Bokeh?.documents[0]?.is_idle && report.childElementCount > 0"
TABLE = """
return [...document.querySelectorAll("#report tr")].map(
  line => [...line.children].map(cell => cell.textContent))
"""
MARKED = """
return [...document.querySelectorAll("#report td.differs")].map(cell => cell.textContent)
"""
PICTURE = """
return [...document.querySelectorAll("#report figure text, #report figure bdi")].map(
  each => each.textContent)
"""


class Reader:
    """A person in front of a page."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, page, path):
        page.save(path, overwrite=True)
        self.driver.get(f"file://{path}")
        WebDriverWait(self.driver, 60).until(lambda driver: driver.execute_script(READY))
        return self

    def text(self, name):
        return self.driver.find_element("id", name).text

    def lines(self):
        """The lines of the table, by their names."""
        rows = self.driver.execute_script(TABLE)
        return {name: values for name, *values in rows}

    def move_to(self, row, *, click=False):
        pointer = ActionBuilder(self.driver)
        place = map(round, self.driver.execute_script(PLACE, row))
        pointer.pointer_action.move_to_location(*place)
        if click:
            pointer.pointer_action.click()
        pointer.perform()
        time.sleep(0.3)  # Bokeh draws in the next frame

    def problems(self):
        lines = self.driver.get_log("browser")
        return [line["message"] for line in lines if "Uncaught" in line["message"]]


@pytest.fixture
def reader():
    options = webdriver.ChromeOptions()
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1300,900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options)
    yield Reader(driver)
    driver.quit()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("scale", [1, 997])  # amounts are rounded to the unit, or beyond it
def test_a_reader_looks_around(flats, scale, reader, tmp_path):
    X, y, queries, truth = flats
    y, truth = scale * y, scale * truth
    regressor = NONARegressor(**QUICK).fit(X, y)
    reader.open(explore(regressor, queries, truth, features=X), tmp_path / "page.html")
    errors = abs(regressor.predict(queries) - truth)
    assert reader.text("report").startswith(errors.idxmax())  # the largest error is first
    assert reader.text("place") == "1 of 10"
    reader.move_to(20)
    tip = reader.text("tip")
    assert "flat <i>20</i>" in tip
    assert f"rent: {y.iloc[20]:,.0f}".partition(".")[0][:-1] in tip
    reader.move_to(155, click=True)
    report = NeighborsReport(regressor, queries[5:6], X, y_true=float(truth.iloc[5]))
    tree = read_html(report._repr_html_())
    (figure,) = tree.iter("figure")
    texts = ["".join(each.itertext()) for each in figure.iter() if each.tag in ("text", "bdi")]
    assert reader.driver.execute_script(PICTURE) == texts
    assert reader.lines() == table_of(report)
    assert [*reader.lines()] == [*table_of(report)]
    marked = reader.driver.execute_script(MARKED)
    cells = [
        each
        for each in read_html(report._repr_html_()).iter("td")
        if "differs" in each.get("class", "")
    ]
    assert marked == ["".join(cell.itertext()) for cell in cells]
    sentences = [text_of(each) for each in tree.iter("p")]
    for sentence in sentences:
        if sentence.startswith(("These ", "Their targets ", "True value", "90% interval")):
            assert sentence in reader.text("report")
    assert reader.text("report").startswith("flat <i>155</i>\nQuery\n")
    heaviest = regressor.heaviest_neighbors(queries.iloc[[5]], 1, return_names=True)[1][0, 0]
    button = reader.driver.find_element("css selector", "#report th button")
    assert button.text == heaviest
    button.click()
    assert reader.text("report").startswith(f"{heaviest}\nStored row, predicted without itself\n")
    assert reader.driver.execute_script("return window.evil") is None
    assert reader.problems() == []


@pytest.mark.slow
@needs_browser
def test_the_keyboard_is_enough(flats, classifier, reader, tmp_path):
    X, _, queries, truth = flats
    labels = np.where(truth > 900, "dear", "cheap").astype(object)
    labels[0] = "unseen"  # which is to be checked
    reader.open(explore(classifier, queries, labels, features=X), tmp_path / "page.html")
    first = reader.text("report")
    slider = reader.driver.find_element("id", "slider")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert reader.text("place") == "2 of 10"
    assert reader.text("report") != first
    reader.driver.find_element("id", "name").send_keys("flat <i>3</i>", Keys.ENTER)
    assert reader.text("report").startswith("flat <i>3</i>")
    color = reader.driver.find_element("id", "color")
    assert reader.text("legend") == "cheap\ndear\nunseen"
    color.send_keys("1")
    assert "%" in reader.text("legend")
    details = reader.driver.find_elements("css selector", "details")
    assert len(details) == 2
    for each in details:
        each.find_element("css selector", "summary").send_keys(Keys.ENTER)
        button = each.find_element("css selector", "button")
        button.send_keys(Keys.ENTER)
        assert button.text.startswith(reader.text("report").splitlines()[0])
    assert reader.problems() == []


@pytest.mark.slow
@needs_browser
def test_images_and_a_narrow_screen(reader, tmp_path):
    digits = load_digits()
    X, y, images = digits.data[:60], digits.target[:60], digits.images
    clf = NONAClassifier(**QUICK | {"max_iter": 2}).fit(X[:50], y[:50])
    page = explore(clf, X[50:], features=images[:50], query_features=images[50:60])
    reader.driver.set_window_size(500, 900)
    reader.open(page, tmp_path / "page.html")
    assert len(reader.driver.find_elements("css selector", "#report img")) > 1
    width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert reader.driver.execute_script(width) == 0
    assert reader.problems() == []
