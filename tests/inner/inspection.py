"""Pages and what they are filled with: names of ``_inspection`` for tests."""

from nona_sklearn._inspection import explorer
from nona_sklearn._inspection.answers import OutputAnswers
from nona_sklearn._inspection.counterfactuals import AllowedChanges, Outcome, RowMixer, _Search
from nona_sklearn._inspection.displays.base import class_colors, legend_beside
from nona_sklearn._inspection.explorer import (
    MOST_BARS,
    Effects,
    _effects,
    _lines,
    _page,
    _palette,
    _query_targets,
    _rows,
    collect_map_data,
    surprising_labels,
    surprising_numbers,
)
from nona_sklearn._inspection.page import (
    Appearance,
    Unit,
    factor,
    odds,
    render,
    share,
    show,
    show_value,
)
from nona_sklearn._inspection.report import Stability
