"""What an explorer shows: rows on a map, their predictions and what is behind these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from .._data.sample import Embedded, TableRows
from .._utils.arrays import object_array
from .._utils.threads import cached_property
from .answers import Answers
from .appearance import IMAGES, Appearance
from .displays.base import target_name
from .effects import Effects, parts_of
from .formatting import Unit
from .surprises import Surprises, surprising_labels, surprising_numbers
from .unwrap import Unwrapped

MOST_COLUMNS = 30  # of more, those in which rows differ most often


@dataclass(frozen=True)
class Explored:
    """Rows on a map, (n,): stored rows, each predicted without itself, and then queries.

    Parameters
    ----------
    names, targets : ndarray of shape (n,)
        Names and true targets; NaN or None where they are not known.
    n_stored : int
        How many are stored rows.
    answers : Answers
        Their predictions. Positions are numbers of these rows.
    embeddings : ndarray of shape (n, d)
        Where the rows are in the learned space.
    xy : ndarray of shape (n, 2)
        Where they are on the map.
    columns : dict of str to ndarray of shape (n,)
        What is shown of each.
    order : int ndarray of shape (n, n_columns)
        Numbers of these columns for the table of each row, those first that matter most.
    effects : Effects, optional
        What columns add to the predictions of numbers, if these have an additive part.
    incomplete : bool ndarray of shape (n,)
        Whether more features are missing than known.
    pictures : bool
        Whether these are addresses of pictures.
    target_name : str
        Name of the target.
    classes : ndarray, optional
        The labels of fit, and then others; None: targets are numbers.
    """

    names: np.ndarray
    targets: np.ndarray
    n_stored: int
    answers: Answers
    embeddings: np.ndarray
    xy: np.ndarray
    columns: dict[str, np.ndarray]
    order: np.ndarray
    effects: Effects | None
    incomplete: np.ndarray
    pictures: bool
    target_name: str
    classes: np.ndarray | None

    @property
    def first_in_order(self) -> int:
        """The first of the rows that a reader goes through: the queries, if there are any."""
        return self.n_stored if self.n_stored < len(self.names) else 0

    @cached_property
    def unit(self) -> Unit:
        """How targets are written, and what is computed of all rows: by their median width."""
        if self.classes is not None:
            return Unit()
        return Unit.of(self.targets, float(np.nanmedian(self._widths)))

    @property
    def places(self) -> np.ndarray:
        """The places (n,) to which computed numbers of each row are rounded, as in its report."""
        largest = np.nanmax(abs(self.targets))
        return np.array([Unit.of([largest], width).place for width in self._widths])

    @property
    def _widths(self) -> np.ndarray:
        """The widths (n,) of the intervals."""
        return np.diff(self.answers.details, axis=1)[:, 0]

    @cached_property
    def to_check(self) -> Surprises:
        """Rows whose target contradicts their prediction more than chance does."""
        surprises = self.answers.surprises
        if self.classes is None:
            found = surprising_numbers(surprises)
        else:
            found = surprising_labels(surprises, self.answers.details)
        return found.without(self.incomplete)

    @property
    def equal(self) -> list[np.ndarray]:
        """Groups of rows that are equal in the learned space, those first whose targets differ."""
        _, group, sizes = np.unique(
            self.embeddings, axis=0, return_inverse=True, return_counts=True
        )
        rows = np.flatnonzero(sizes[group.ravel()] > 1)
        order = rows[np.argsort(group.ravel()[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(group.ravel()[order])) + 1
        groups = np.split(order, starts) if len(order) else []
        return sorted(groups, key=self._disagreement, reverse=True)

    def _disagreement(self, rows: np.ndarray) -> float:
        """How much the targets of some rows differ."""
        targets = self.targets[rows]
        if self.classes is not None:
            return len({*targets} - {None}) - 1
        known = targets[~np.isnan(targets)]
        return float(np.ptp(known)) if len(known) else 0.0


def look_around(
    model: Unwrapped,
    query: Embedded | None,
    truth: np.ndarray,
    appearance: Appearance,
    *,
    max_rows: int,
    reducer: Any = None,
    random_state: Any = None,
    **options: Any,
) -> Explored:
    """Predict queries with these targets, and stored rows, each without itself."""
    bank, head = model.estimator.bank_, model.estimator.network_.head
    random_state = check_random_state(random_state)
    most = max_rows - len(truth)
    stored, answers = _answer(model, query, truth, appearance, most, random_state, options)
    vectors = bank.embeddings[stored]
    vectors = vectors if query is None else torch.cat([vectors, query.embeddings])
    embeddings = head.metric_part(vectors).cpu().numpy()
    features, name = appearance.rows, target_name(model)
    parts = parts_of(model, features, _without_themselves(model, stored), query)
    effects = None
    if parts is not None:
        shown = [feature[stored] for feature in features]
        effects = Effects.of(shown, parts[: len(stored)], name)
    often = np.bincount(answers.differs.ravel(), minlength=len(features) + 1)[:-1]
    chosen = np.sort(np.argsort(-often, kind="stable")[:MOST_COLUMNS])
    answers, columns = answers.of_columns(chosen, len(features)), appearance.shown(stored, chosen)
    own = None if parts is None else parts[:, chosen]
    targets = np.concatenate([model.neighbor_targets()[stored], truth])
    return Explored(
        names=np.concatenate([bank.names_of(stored), _queries(query)]),
        targets=targets,
        n_stored=len(stored),
        answers=answers,
        embeddings=embeddings,
        xy=_on_a_map(embeddings, reducer),
        columns=columns,
        order=answers.order_of_columns(len(columns), own),
        effects=effects,
        incomplete=appearance.incomplete(stored, len(targets)),
        pictures=appearance.kind == IMAGES,
        target_name=name,
        classes=_labels(model, targets),
    )


def _answer(
    model: Unwrapped,
    query: Embedded | None,
    truth: np.ndarray,
    appearance: Appearance,
    most: int,
    random_state: np.random.RandomState,
    options: dict[str, Any],
) -> tuple[np.ndarray, Answers]:
    """Positions of the stored rows on the map; their predictions, and those of the queries.

    More than `most` are there where these do not hold all the rows behind predictions.
    """
    bank, targets = model.estimator.bank_, model.neighbor_targets()

    def own(rows: np.ndarray) -> Answers:
        pairs = [(column, column[rows]) for column in appearance.rows]
        queries = _without_themselves(model, rows)
        return Answers.of(model, queries, targets[rows], pairs, **options)

    of_queries = []
    if query is not None:
        pairs = [*zip(appearance.rows, appearance.queries, strict=True)]
        of_queries = [Answers.of(model, query, truth, pairs, **options)]
    stored = _choose(_rows_behind(of_queries), len(bank), most, random_state)
    of_stored = [own(stored)]
    if len(further := np.setdiff1d(_rows_behind(of_stored), stored)):
        of_stored.append(own(further))
    stored = np.concatenate([stored, further])
    return stored, Answers.joined(*of_stored, *of_queries).among(stored)


def _without_themselves(model: Unwrapped, rows: np.ndarray) -> Embedded:
    """Rows of the bank, by their positions, as queries that are predicted without themselves."""
    bank, network = model.estimator.bank_, model.estimator.network_
    inputs = None if bank.inputs is None else TableRows(bank.inputs)[rows]
    names, ids = bank.names_of(rows), bank.ids[rows]
    return Embedded(bank.embeddings[rows], network, names, ids, inputs=inputs)


def _rows_behind(answers: list[Answers]) -> np.ndarray:
    """Positions of the rows behind some predictions."""
    positions = [each.positions[each.weights > 0] for each in answers]
    return np.unique(np.concatenate([np.arange(0), *positions]))


def _choose(
    first: np.ndarray, n_rows: int, most: int, random_state: np.random.RandomState
) -> np.ndarray:
    """Positions of rows: all or, of more than `most`, the first ones and others at random."""
    if n_rows <= most:
        return np.arange(n_rows)
    others = np.setdiff1d(np.arange(n_rows), first)
    n_more = min(max(0, most - len(first)), len(others))
    return np.sort(np.concatenate([first, random_state.choice(others, n_more, replace=False)]))


def _queries(query: Embedded | None) -> np.ndarray:
    """Names of queries, or their numbers."""
    if query is None:
        return np.empty(0, dtype=object)
    return np.arange(len(query)).astype(object) if query.labels is None else query.labels


def _labels(model: Any, targets: np.ndarray) -> np.ndarray | None:
    """The labels of fit, and then others among the targets; None: targets are numbers."""
    if not is_classifier(model.estimator):
        return None
    others = [label for label in dict.fromkeys(targets) if label not in {*model.classes_, None}]
    return object_array([*model.classes_, *others])


def _on_a_map(embeddings: np.ndarray, reducer: Any) -> np.ndarray:
    """Coordinates of rows (n, d) in two dimensions."""
    n_components = min(2, *embeddings.shape)
    reducer = PCA(n_components) if reducer is None else reducer
    found = np.asarray(reducer.fit_transform(embeddings), dtype=float)[:, :2]
    return np.pad(found, [(0, 0), (0, 2 - found.shape[1])])
