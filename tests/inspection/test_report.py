"""The report of one prediction, as a page."""

import re
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from flats import make_flats
from inner.inspection import Stability, Unit, render, show, show_value
from pages import Page, policy_of
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsRegressor,
    counterfactuals,
)

QUICK = {"n_estimators": 1, "max_iter": 15, "random_state": 0}
EVIL = '<script>alert("&")</script>'


@pytest.fixture(scope="module")
def flats():
    """A raw table of 120 flats with rents, and a flat."""
    X, rent = make_flats(121, EVIL)
    return X[:120], rent[:120].rename("<b>rent</b>"), X[120:]


@pytest.fixture(scope="module")
def regressor(flats):
    X, y, _ = flats
    return NONARegressor(**QUICK).fit(X, y)


@pytest.fixture(scope="module")
def classifier(flats):
    X, y, _ = flats
    outcome = pd.Series(np.where(y > 800, EVIL, "cheap"), name="<b>outcome</b>")
    return NONAClassifier(**QUICK).fit(X, outcome)


def number(text):
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


@pytest.mark.slow
def test_the_keyboard_reaches_what_scrolls(flats, regressor):
    X, _, query = flats
    html = NeighborsReport(regressor, query, X)._repr_html_()
    regions = re.findall(r'<div class="scroll"[^>]*>', html)
    assert regions
    assert all('tabindex="0"' in region for region in regions)


def test_the_numbers_are_those_of_the_model(flats, regressor):
    X, _, query = flats
    report = NeighborsReport(regressor, query, X, n_neighbors=4)
    page = Page(report._repr_html_())
    (prediction,) = regressor.predict(query)
    low, high = regressor.predict_quantiles(query, [0.05, 0.95])[0]
    unit = Unit.of([prediction, *regressor.explain(query, 4)["target"]], high - low)
    assert unit.rounded(prediction) in page.texts
    assert f"90% interval: {unit.rounded(low)} to {unit.rounded(high)}" in page.texts
    table = regressor.explain(query, n_neighbors=4)
    lines = page.lines("The query and the rows")
    assert lines[""] == [query.index[0], *table["neighbor"]]
    for name, column in [
        ("<b>rent</b>", "target"),
        ("adjusted to the query", "adjusted_target"),
        ("contribution", "contribution"),
    ]:
        shown = [number(text) for text in lines[name][1:]]
        np.testing.assert_allclose(shown, table[column], atol=0.51)
    assert number(lines["contribution"][0]) == pytest.approx(prediction, abs=0.51)
    shares = [float(text.rstrip("%")) / 100 for text in lines["weight"][1:]]
    np.testing.assert_allclose(shares, table["weight"], atol=0.0051)


def test_what_is_computed_is_rounded_and_what_is_given_is_not(flats):
    """Rents of some hundred thousands: a width has three digits, and so have computed amounts."""
    X, y, query = flats
    y = (997 * y).round()
    reg = NONARegressor(**QUICK).fit(X, y)
    (prediction,), ((low, high),) = reg.predict(query), reg.predict_quantiles(query, [0.05, 0.95])
    place = int(np.floor(np.log10(high - low))) - 2
    assert place >= 2

    def rounded(value):
        return f"{10**place * round(value / 10**place):,}"

    options = {"y_true": 700_123.0, "at_least": prediction + 50_001}
    page = Page(NeighborsReport(reg, query, X, n_neighbors=4, **options)._repr_html_())
    assert page.texts[page.texts.index("True value: ") + 1] == "700,123"
    assert rounded(prediction) in page.texts
    assert f"90% interval: {rounded(low)} to {rounded(high)}" in page.texts
    rows, table = page.lines("The query and the rows"), reg.explain(query, 4)
    *own, mean = rows["<b>rent</b>"][1:]  # others have a mean
    assert own == [f"{target:,.0f}" for target in table["target"][:4]]
    assert mean == rounded(table["target"][4])
    assert rows["adjusted to the query"][1:] == [*map(rounded, table["adjusted_target"])]
    assert rows["contribution"] == [*map(rounded, [prediction, *table["contribution"]])]
    moves = page.lines("Adjustments by column")
    del moves[""]
    amounts = [number(text) for line in moves.values() for text in line if text]
    assert amounts
    assert all(amount % 10**place == 0 for amount in amounts)
    changed = page.lines("Now, changed, and the real row nearby")
    assert changed["prediction"][0] == rounded(prediction)
    assert number(changed["prediction"][1]) % 10**place == 0
    assert number(changed["<b>rent</b>"][2]) in {*y}
    assert show_value(options["at_least"]) in page.texts


def test_targets_and_their_adjustment_are_the_prediction(flats, regressor):
    X, _, query = flats
    page = Page(NeighborsReport(regressor, query, X, n_neighbors=4)._repr_html_())
    (text,) = [text for text in page.texts if "weighted mean of" in text]
    mean, verb, added = re.fullmatch(
        r"The weighted mean of all rows is (\S+); the adjustment (adds|subtracts) (\S+)\.",
        text,
    ).groups()
    assert number(mean) == pytest.approx(regressor.neighbor_weights(query) @ flats[1], abs=0.51)
    signed = number(added) * (1 if verb == "adds" else -1)
    assert number(mean) + signed == pytest.approx(*regressor.predict(query), abs=1.01)


def test_the_features_are_beside_the_query_s_and_marked(flats, regressor):
    X, _, query = flats
    table = regressor.explain(query, n_neighbors=4, features=X)
    lines = Page(NeighborsReport(regressor, query, X, n_neighbors=4)._repr_html_()).lines(
        "The query and the rows"
    )
    for place, name in enumerate(lines[""][1:5], start=1):
        differs = table.loc[table["neighbor"] == name, "differs"].item().split(", ")
        for column in X.columns:
            text = lines[column][place]
            assert (" (differs)" in text) == (column in differs)
            value = X.loc[name, column]
            shown = text.removesuffix(" (differs)")
            if pd.isna(value):
                assert shown == "missing"
            elif column == "built":
                assert shown == str(value.date())
            elif column == "district":
                assert shown == value
            else:
                assert float(shown) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("around", [lambda model: model, make_pipeline])
def test_a_report_says_how_steady_its_rows_are(flats, regressor, around):
    """As the method does, of the same number of rows."""
    X, _, query = flats
    page = Page(NeighborsReport(around(regressor), query, X, n_refits=5)._repr_html_())
    found = regressor.neighbor_stability(query, n_refits=5, n_neighbors=6)
    named = (found["n_refits"] * found["selection_frequency"]).round().astype(int)
    expected = [f"{n} of {of}" for n, of in zip(named, found["n_refits"], strict=True)]
    assert page.lines("The query and the rows")["again in"] == ["", *expected, ""]
    sentence = (
        f"In 5 refits, each to 90% of the rows, {(found['selection_frequency'] >= 0.9).sum()} of "
        "these 6 rows are again among the 6 heaviest in at least 90% of those that contain them."
    )
    assert sentence in page.texts


def test_a_report_counts_no_refits_by_default(flats, regressor):
    X, _, query = flats
    page = Page(NeighborsReport(regressor, query, X)._repr_html_())
    assert "again in" not in page.lines("The query and the rows")
    assert not any("refits" in text for text in page.texts)


@pytest.mark.parametrize("n_refits", [1, 2.5, True, "many"])
def test_a_report_needs_two_refits(flats, regressor, n_refits):
    with pytest.raises(ValueError, match=f"n_refits must be .* of at least 2, got {n_refits!r}"):
        NeighborsReport(regressor, flats[2], n_refits=n_refits)


def sentence(stability):
    return render("stability.html", stability=stability)


def test_half_of_the_rows_are_enough():
    """A row is steady that more than half of the refits name which contain it."""
    counts = np.array([10, 8, 9, 9])

    def stability(named):
        return Stability(4, "10 refits", counts, np.array(named) / counts)

    steady, unsteady = stability([10, 8, 4, 0]), stability([10, 4, 4, 0])
    assert steady.is_steady
    assert sentence(steady).startswith("In 10 refits, 2 of these 4 rows are again among the 4")
    assert not unsteady.is_steady
    assert sentence(unsteady).startswith("The rows are not steady: only 1 of these 4 are again")
    assert unsteady.counts(5) == ["10 of 10", "4 of 8", "4 of 9", "0 of 9", ""]


@pytest.mark.parametrize(
    ("n_neighbors", "frequency", "expected"),
    [
        (1, 0.9, "In 10 refits, this row is again the heaviest in at least 90% of those"),
        (6, 0.8, "In 10 refits, this row is not again among the 6 heaviest in at least 90% of"),
        (1, 0.5, "The row is not steady: it is again the heaviest in at most half of 10 refits."),
    ],
)
def test_one_row_has_a_sentence_of_its_own(n_neighbors, frequency, expected):
    stability = Stability(n_neighbors, "10 refits", np.array([10]), np.array([frequency]))
    assert sentence(stability).startswith(expected)


def test_weights_of_rows_that_are_not_steady_are_whole():
    """Of 40 flats with one area, it is a matter of chance which six are behind a rent."""
    X = np.r_[np.full(40, 50.0), np.linspace(60, 90, 40)][:, None]
    reg = NONARegressor(n_neighbors=21, **QUICK).fit(
        X, X[:, 0] + np.random.RandomState(0).rand(80)
    )
    page = Page(NeighborsReport(reg, [[50.1]], n_refits=10)._repr_html_())
    (sentence,) = [text for text in page.texts if "refits" in text]
    assert sentence.startswith("The rows are not steady: only 0 of these 6 are again among")
    shares = page.lines("The query and the rows")["weight"][1:7]
    assert shares == ["5%"] * 6
    exact = Page(NeighborsReport(reg, [[50.1]])._repr_html_()).lines("The query and the rows")
    assert exact["weight"][1:7] == ["4.8%"] * 6  # of 21 rows at one distance


@pytest.mark.parametrize("confidence", [0.5, 0.8])
def test_the_interval_has_the_confidence(flats, regressor, confidence):
    _, _, query = flats
    low, high = regressor.predict_quantiles(query, [(1 - confidence) / 2, (1 + confidence) / 2])[0]
    texts = Page(NeighborsReport(regressor, query, confidence=confidence)._repr_html_()).texts
    (text,) = [text for text in texts if text.startswith(f"{confidence:.0%} interval: ")]
    ends = [number(end) for end in text.partition(": ")[2].split(" to ")]
    np.testing.assert_allclose(ends, [low, high], atol=0.51)


def test_values_as_people_read_them():
    values = [
        np.timedelta64(3, "h"),
        np.datetime64("2020-01-05"),
        1999999.56,
        2e6,
        None,
        2.0,
        True,
    ]
    expected = ["3:00:00", "2020-01-05", "1999999.56", "2,000,000", "missing", "2", "True"]
    assert [show(value) for value in values] == expected
    assert Unit.of([1234.5, 20.0]).show(1234.5) == "1,234"
    assert Unit.of([0.123456]).show(-0.123456) == "\N{MINUS SIGN}0.123"
    assert Unit.of([5.15e-12]).show(5.15e-12) == "5.15e\N{MINUS SIGN}12"
    assert Unit.of([12.0]).signed(-0.01) == ""
    assert Unit().show(2000.0) == "2000"


def test_adjustments_sum_to_what_is_adjusted(flats, regressor):
    X, _, query = flats
    page = Page(NeighborsReport(regressor, query, X, n_neighbors=4)._repr_html_())
    moves = page.lines("Adjustments by column")
    rows = page.lines("The query and the rows")
    names = moves.pop("")
    for i in range(len(names)):
        total = sum(number(line[i]) for line in moves.values() if line[i])
        change = number(rows["adjusted to the query"][i + 1]) - number(rows["<b>rent</b>"][i + 1])
        assert total == pytest.approx(change, abs=0.5 * (len(moves) + 2) + 0.01)


def test_the_columns_that_adjust_most_come_first_and_the_rest_last(flats, regressor):
    X, _, query = flats
    table = regressor.attribute(query, X, n_neighbors=4)
    page = Page(NeighborsReport(regressor, query, X, n_neighbors=4)._repr_html_())
    names = [name for name in page.lines("Adjustments by column") if name]
    assert ('"other" is the sum of small parts' in " ".join(page.texts)) == ("other" in names)
    assert "other" not in names[:-1]
    names = [name for name in names if name not in ("interplay", "other")]
    sizes = [table[name].abs().sum() for name in names]
    assert sizes == sorted(sizes, reverse=True)
    small = [name for name in X.columns if name not in names]  # they are put together
    assert table[small].abs().max().max() < 0.051 * table[X.columns].abs().max().max()
    features = [name for name in page.lines("The query and the rows") if name in X.columns]
    assert features[: len(names)] == names


def test_factors_of_odds_lead_from_each_row_to_the_query(flats, classifier):
    X, _, query = flats
    page = Page(NeighborsReport(classifier, query, X, n_neighbors=4)._repr_html_())
    lines = page.lines("Adjustments by column")
    rows, alone, last = (lines.pop(name) for name in ("", "odds of the row", "odds of the query"))
    probabilities, at_rows = classifier.predict_proba(query)[0], classifier.predict_proba(None)
    own = probabilities.argmax()
    assert number(last[0]) == pytest.approx(probabilities[own] / probabilities[1 - own], rel=0.05)
    assert len({*last}) == 1
    table = classifier.attribute(query, X, n_neighbors=4)
    largest = abs(table[X.columns]).sum().idxmax()
    signed = table[largest] * (1 if own == 1 else -1)
    for i, name in enumerate(rows):
        odds = at_rows[X.index.get_loc(name)]
        assert number(alone[i]) == pytest.approx(odds[own] / odds[1 - own], rel=0.05)
        factors = [number(line[i].removeprefix("×")) for line in lines.values() if line[i]]
        assert number(alone[i]) * np.prod(factors) == pytest.approx(number(last[i]), rel=0.2)
        shown = number(lines[largest][i].removeprefix("×") or "1")
        assert shown == pytest.approx(np.exp(signed[i]), rel=0.05)
    assert "Odds of " in page.texts
    assert "the factors of all differences" in " ".join(page.texts)


@pytest.mark.slow
def test_a_row_needs_times_that_are_a_column(flats):
    X, y, _ = flats
    model = NONARegressor(**QUICK).fit(X, y, times=np.arange(120))
    with pytest.raises(ValueError, match="row needs times that are a column of X"):
        NeighborsReport(model, row=X.index[5], features=X)
    model = NONARegressor(**QUICK).fit(X, y, times="built")
    page = Page(NeighborsReport(model, row=X.index[5], features=X)._repr_html_())
    earlier = X.index[X["built"] < X.loc[X.index[5], "built"]]
    assert {*page.lines("The query and the rows")[""][1:]} - {"others"} <= {*earlier}


@pytest.mark.slow
def test_texts_are_escaped(flats, classifier, tmp_path):
    X, _, query = flats
    report = NeighborsReport(classifier, query, X, y_true=EVIL, n_neighbors=3)
    report.save(tmp_path / "decision.html")
    saved = (tmp_path / "decision.html").read_text(encoding="utf-8")
    for html in (report._repr_html_(), saved):
        page = Page(html)
        assert not {"script", "b", "i"} & {*page.tags}
        assert EVIL in page.texts[page.texts.index("True value: ") :]
        assert page.addresses == []
        assert "@import" not in html
        assert "url(" not in html
    assert len(saved) < 300_000
    assert saved.startswith("<!DOCTYPE html>")
    assert report.title in "".join(Page(saved).texts).split("<!")[0]


def test_probabilities_and_votes(flats, classifier):
    X, _, query = flats
    page = Page(NeighborsReport(classifier, query, X)._repr_html_())
    lines = page.lines("Probabilities of")
    del lines["class"]
    found = classifier.explain(query)
    probabilities = classifier.predict_proba(query)[0]
    for label, probability in zip(classifier.classes_, probabilities, strict=True):
        shown, votes, added = (
            number(text.lstrip("<").rstrip("%") or "0") / 100 for text in lines[label]
        )
        assert shown == pytest.approx(probability, abs=0.0051)
        own = found.loc[found["target"].notna(), f"contribution_{label}"].sum()
        assert votes == pytest.approx(own, abs=0.0051)
        assert added == pytest.approx(probability - own, abs=0.0051)


@pytest.mark.slow
def test_the_contrast_is_a_counterfactual(flats, classifier, regressor):
    X, _, query = flats
    caption = "Now, changed, and the real row nearby"
    found = counterfactuals(classifier, query, X, fixed=["built"])
    lines = Page(NeighborsReport(classifier, query, X, fixed=["built"])._repr_html_()).lines(
        caption
    )
    assert lines[""][2] == found.loc[2, "row"]
    assert lines["prediction"][:2] == found["prediction"][:2].tolist()
    assert {*lines} - {"", "prediction", "<b>outcome</b>"} == {
        *found.loc[1, "changed"].split(", ")
    }
    at_least = regressor.predict(query)[0] + 50
    page = Page(NeighborsReport(regressor, query, X, at_least=at_least)._repr_html_())
    assert "To reach at least " in page.texts  # what was asked for
    assert show_value(at_least) in page.texts
    assert number(page.lines(caption)["prediction"][1]) >= np.floor(at_least)
    assert caption not in NeighborsReport(regressor, query, X)._repr_html_()


def test_a_report_repeats_what_may_change(flats, regressor):
    X, _, query = flats
    allowed = {"fixed": ["built"], "increase": "floor", "limits": {X.columns[0]: (None, 9_000)}}
    at_least = regressor.predict(query)[0] + 1
    page = Page(NeighborsReport(regressor, query, X, at_least=at_least, **allowed)._repr_html_())
    text = " (fixed: built; only rising: floor; area <m²> at most 9000)"
    assert any(text in each for each in page.texts)


def test_a_row_is_predicted_without_itself(flats, regressor):
    X, y, _ = flats
    name = X.index[7]
    page = Page(NeighborsReport(regressor, row=name, features=X)._repr_html_())
    lines = page.lines("The query and the rows")
    assert lines[""][0] == name
    assert name not in lines[""][1:]
    (alone,) = regressor.predict(None)[[7]]
    assert number(lines["contribution"][0]) == pytest.approx(alone, abs=0.51)
    assert number(page.texts[page.texts.index("True value: ") + 1]) == pytest.approx(
        y.iloc[7], abs=1
    )


def test_unusual_queries(flats, regressor):
    X, _, query = flats
    far = query.assign(**{"area <m²>": 900.0})
    assert "An unusual case: " in NeighborsReport(regressor, far)._repr_html_()
    near = X.iloc[:1].assign(**{"area <m²>": X.iloc[0, 0] + 1e-3}).set_axis(["new"])
    texts = " ".join(Page(NeighborsReport(regressor, near)._repr_html_()).texts)
    assert int(re.search(r"A typical case: (\d+)% of the stored rows are", texts)[1]) > 50


@pytest.mark.slow
def test_models_around_an_estimator(flats):
    X, y, query = flats
    numbers = X[["area <m²>"]]
    logs = TransformedTargetRegressor(NONARegressor(**QUICK), func=np.log, inverse_func=np.exp)
    model = make_pipeline(StandardScaler(), logs).fit(numbers, y)
    page = Page(NeighborsReport(model, query[numbers.columns], numbers)._repr_html_())
    (prediction,) = model.predict(query[numbers.columns])
    assert f"{prediction:,.0f}" in page.texts
    model = make_pipeline(StandardScaler(), NONARegressor(**QUICK)).fit(numbers, y)
    page = Page(NeighborsReport(model, query[numbers.columns], numbers)._repr_html_())
    assert [*page.lines("Adjustments by column")] == ["", "x0", "other"]
    array = numbers.to_numpy()
    plain = NONARegressor(**QUICK).fit(array, y.to_numpy())
    page = Page(NeighborsReport(plain, array[:1] + 1, array)._repr_html_())
    assert "x0" in page.lines("The query and the rows")
    Page(NeighborsReport(plain, array[:1] + 1)._repr_html_())


def test_bad_parameters(flats, regressor, classifier, tmp_path):
    X, y, query = flats
    for options, message in [
        ({}, "exactly one of X and row must be given, got neither"),
        ({"X": query, "row": X.index[0]}, "got both"),
        ({"X": X[:2]}, "X must be one row, got 2"),
        ({"X": query, "confidence": 1}, "confidence must be between 0 and 1, got 1"),
        ({"X": query, "n_neighbors": 0}, "n_neighbors must be a positive integer, got 0"),
        ({"X": query, "at_least": 9}, "at_least needs features, got 9 without them"),
        ({"row": X.index[0]}, "row needs features"),
        ({"row": "flat", "features": X}, "row must be the name of one row of the bank"),
        ({"row": X.index[0], "features": X, "y_true": 3}, "y_true must be None with row"),
        ({"X": query, "y_true": "abc"}, "y_true must be a number, got 'abc'"),
        ({"X": query, "y_true": np.nan}, "y_true must be a number, got nan"),
        ({"X": query, "fixed": ["built"]}, "fixed needs features, got ['built'] without them"),
        ({"X": query, "features": X, "fixed": ["built"]}, "fixed needs at_least or at_most"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            NeighborsReport(regressor, **options)
    with pytest.raises(ValueError, match="y_true must be one of the classes of fit, got 'dear'"):
        NeighborsReport(classifier, query, y_true="dear")
    alone = deepcopy(regressor).remove_neighbors(ids=[*range(1, 120)])
    with pytest.raises(ValueError, match="row needs another row in the bank"):
        NeighborsReport(alone, row=X.index[0], features=X)
    both = NONARegressor(**QUICK | {"max_iter": 2}).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=re.escape("output must be one of [0, 1], got None")):
        NeighborsReport(both, query)
    report = NeighborsReport(classifier, query)
    report.save(tmp_path / "here.html")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        report.save(tmp_path / "here.html")
    report.save(tmp_path / "here.html", overwrite=True)
    with pytest.raises(ValueError, match=r"path must end in .html, got '.*here.PDF'"):
        report.save(tmp_path / "here.PDF")
    with pytest.raises(OSError, match=r"there is no folder '.*nowhere'"):
        report.save(tmp_path / "nowhere" / "here.html")
    with pytest.raises(ValueError, match="overwrite must be True or False, got 1"):
        report.save(tmp_path / "here.html", overwrite=1)
    with pytest.raises(TypeError, match="path must be a str or path-like, got 3"):
        report.save(3)


def test_a_page_can_load_nothing_and_names_turn_no_text_around(flats, regressor, tmp_path):
    X, _, query = flats
    turned = "flat \N{RIGHT-TO-LEFT OVERRIDE}new"
    report = NeighborsReport(regressor, query.set_axis([turned]), X, n_neighbors=2)
    report.save(tmp_path / "report")  # a browser opens files of this ending only
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert policy_of(html).startswith("default-src 'none';")
    assert "script-src" not in policy_of(html)
    assert html.count(turned) == html.count(f"<bdi>{turned}</bdi>") > 0
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in re.search("<title>.*?</title>", html)[0]


def test_names_of_columns_and_long_texts_turn_no_text_around():
    """In tables, and in the sentence of what would have to be different."""
    area, note = "area \N{RIGHT-TO-LEFT OVERRIDE}m²", "noted \N{RIGHT-TO-LEFT OVERRIDE}" * 10
    X = pd.DataFrame({area: [50.0, 60, 80, 90, 120], "note": note})
    knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    query = pd.DataFrame({area: [84.0], "note": note}, index=["mine"])
    knn.fit(X, np.array([250.0, 300, 400, 450, 600]))
    html = NeighborsReport(knn, query, X, at_least=500)._repr_html_()
    assert f"<bdi>{area}</bdi> <bdi>" in html  # of the sentence
    for own in (area, note):
        assert html.count(own) == html.count(f"<bdi>{own}</bdi>") > 0


@pytest.mark.slow
def test_odds_of_one_of_several_outputs(flats):
    X, y, query = flats
    thirds = pd.qcut(y, 3, labels=["low", "middle", "high"]).astype(str)
    both = pd.DataFrame({"dear": y > 800, "third": thirds})
    model = NONAClassifier(**QUICK | {"max_iter": 3}).fit(X, both)
    report = NeighborsReport(model, query, X, output="third")
    page = Page(report._repr_html_())
    _, other, own = np.sort(model.predict_proba(query)[1][0])
    lines = page.lines("Adjustments by column")
    assert number(lines["odds of the query"][0]) == pytest.approx(own / other, rel=0.05)
    assert {*lines} >= {"odds of the row", "area <m²>"}
    plain = NONAClassifier(**QUICK, similarity="l2").fit(X, thirds)
    assert "Adjustments by column" not in NeighborsReport(plain, query, X)._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("output", ["size", 1])
def test_one_of_several_outputs(flats, output):
    X, y, query = flats
    both = pd.DataFrame({"rent": y, "size": X["area <m²>"]})
    model = NONARegressor(**QUICK | {"max_iter": 3}).fit(X, both)
    prediction = model.predict(query)[0, 1]
    report = NeighborsReport(model, query, X, output=output, at_least=prediction + 1)
    assert report.title.startswith("Prediction of size for")
    lines = Page(report._repr_html_()).lines("The query and the rows")
    table = model.explain(query, 6)
    for name, column in [("size", "target"), ("contribution", "contribution")]:
        shown = [number(text) for text in lines[name][1:]]
        np.testing.assert_allclose(shown, table[f"{column}_size"], atol=0.051)
    moves = Page(report._repr_html_()).lines("Adjustments by column")
    assert {*moves} <= {"", "interplay", "other", *X.columns}
    row = NeighborsReport(model, row=X.index[3], features=X, output=output)
    texts = Page(row._repr_html_()).texts
    true = number(texts[texts.index("True value: ") + 1])
    assert true == pytest.approx(X.iloc[3, 0], abs=0.051)


def test_texts_and_pictures_of_the_rows(flats, regressor):
    _, _, query = flats
    texts = ["short", *["many words " * 40] * 119]
    html = NeighborsReport(regressor, query, texts, query_features=["mine"])._repr_html_()
    line = Page(html).lines("The query and the rows")["text"]
    assert line[0] == "mine"
    assert all(cell == "short" or cell.count("many words") > 10 for cell in line[1:] if cell)
    images = np.random.RandomState(0).rand(120, 4, 4)
    page = Page(NeighborsReport(regressor, query, images, query_features=images[:1])._repr_html_())
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    with pytest.raises(ValueError, match="query_features needs features"):
        NeighborsReport(regressor, query, query_features=["mine"])


def test_classes_that_are_improbable_share_a_line(flats):
    X, _, query = flats
    labels = np.arange(120) % 8
    labels[:100] = 0
    model = NONAClassifier(**QUICK | {"max_iter": 2}).fit(X, labels)
    lines = Page(NeighborsReport(model, query)._repr_html_()).lines("Probabilities of")
    probabilities = np.sort(model.predict_proba(query)[0])
    n_shown = max(2, (probabilities >= 0.01).sum())
    assert len(lines) - 1 == (8 if n_shown >= 7 else n_shown + 1)
    assert not any("0%" in (votes, added) for _, votes, added in [*lines.values()][1:])
