"""The words of tables and pictures, which reports and the program of an explorer fill in."""

from __future__ import annotations

BESIDE = "The query and the rows behind its prediction"  # the caption of the table
ADJUSTED, CONTRIBUTION = "adjusted to the query", "contribution"  # lines of it
ONE_ROW = "One row makes up {share} of the prediction."
SOME_ROWS = "These {n} rows make up {share} of the prediction."
MARKED = " Yellow: the largest differences of each row."
DIFFERS = " (differs)"
ADDS = "Their targets have a weighted mean of {mean}; the adjustment adds {amount}."
TAKES = "Their targets have a weighted mean of {mean}; the adjustment takes {amount} away."
DOTS = "Dots: {target}. Larger dots have more weight."
RINGS = " Rings: adjusted to the query."
LINE = " Line: the prediction, in its interval."
DASHED = " Dashed: the true value."
FURTHER = "{n} further columns"
