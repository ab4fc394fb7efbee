import numpy as np
import pytest
from inner.inspection import Unit, factor, odds, share


@pytest.mark.parametrize(
    ("values", "value", "expected"),
    [
        ([1.23e-4], 2e-6, "0.000002"),  # as many decimals as the largest needs for three digits
        ([np.inf, 12.0], 12.0, "12.0"),
        ([12.0], np.nan, ""),
        ([-1234.0], -1234.0, "\N{MINUS SIGN}1,234"),
        ([0.0], 0.0, "0"),
        ([155_000], 155_000, "155,000"),  # whole numbers as others
        ([5e-12], 5e-12, "5e\N{MINUS SIGN}12"),
    ],
)
def test_numbers_of_one_unit(values, value, expected):
    assert Unit.of(values).show(value) == expected


def test_amounts_have_signs():
    assert Unit.of([1.23e-4]).signed(2e-6) == "+0.000002"
    tiny = Unit.of([5e-12])
    assert [tiny.signed(value) for value in (5e-12, -5e-12)] == [
        "+5e\N{MINUS SIGN}12",
        "\N{MINUS SIGN}5e\N{MINUS SIGN}12",
    ]
    assert Unit.of([100.0]).signed(0.2) == ""


def test_computed_numbers_have_three_digits_of_the_interval():
    unit = Unit.of([161_587.0, 153_000.0], 33_650.0)
    assert unit.show(161_587.0) == "161,587"
    assert [unit.rounded(value) for value in (160_219.0, -31.0, np.nan)] == ["160,200", "0", ""]
    assert [unit.signed(value) for value in (-6_512.0, 165.0, 31.0)] == [
        "\N{MINUS SIGN}6,500",
        "+200",
        "",
    ]


@pytest.mark.parametrize(
    ("width", "given", "computed"),
    [
        (3.0, "123.46", "123.46"),  # the interval has decimals
        (30.0, "123.5", "123.5"),
        (300.0, "123", "123"),
        (30_000.0, "123", "100"),
        (1e-6, "123.456", "123.456"),  # six digits at most
        (0.0, "123", "123"),  # three digits, where no interval is known
        (np.nan, "123", "123"),
        (np.inf, "123", "123"),
    ],
)
def test_the_width_of_the_interval_decides(width, given, computed):
    unit = Unit.of([123.456], width)
    assert (unit.show(123.456), unit.rounded(123.456)) == (given, computed)


def test_labels_are_shown_as_they_are():
    for write in (Unit().show, Unit().rounded):
        assert [write(label) for label in ("good", 3, 1.0)] == ["good", "3", "1"]


def test_shares_have_two_digits():
    assert [share(value) for value in (0.0, 0.094, 0.097, 1.0)] == ["0%", "9.4%", "10%", "100%"]


def test_odds_as_people_read_them():
    texts = [odds(np.log(value)) for value in (0.0042, 0.48, 1.0, 2.13, 12.4, 1341, 3.2e7)]
    assert texts == ["0.0042", "0.48", "1.00", "2.13", "12", "1,341", "3.2e+07"]
    assert odds(-1e3) == "0"
    assert odds(2e3)
    assert [factor(move) for move in (0.0, 0.001, np.log(2.1))] == ["", "", "×2.10"]
