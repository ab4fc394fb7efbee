"""Queries of a fitted estimator: validated, embedded, and evaluated on its bank.

Functions read a snapshot of the estimator, since a concurrent thread may edit it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor

from .._data.row import Row, row_of_mapping
from .._data.rule_columns import StoredRule
from .._data.sample import Embedded, Rows, TableRows
from .._data.source import Source, TableSource, largest_entry
from .._data.tables import Names, in_order_of, labels_of, labels_of_fit
from .._data.times import read_new_times, read_query_times
from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.neighbors import MaskExclusion, RuleExclusion
from .._network.network import NeighborNetwork, embed
from .._training.progress import with_progress
from .._trend.trend import Trend
from .._utils.tables import exchange_column, stack_rows, warn_of_other_order
from .._utils.threads import snapshot
from .._utils.validation import check_n_neighbors, is_whole
from ..attention.head import ClassHead
from ..eligibility import Distance, Eligibility, Required
from ..explanation import Explanation

N_NEIGHBORS = 5  # of scikit-learn's estimators, by default


def fitted_snapshot(estimator: Any) -> Any:
    """Return a snapshot of the estimator, or raise if it is not fitted."""
    check_is_fitted(estimator)
    return snapshot(estimator)


# -- rows --------------------------------------------------------------------------------------


def as_row(fitted: Any, X: Any) -> Any:
    """Return a dict or a Series as a row of the table of fit, and any other X unchanged.

    Raise a ValueError if columns are missing or unknown.
    """
    if not hasattr(fitted, "features_"):  # a dict may hold the rows of a feature extractor
        return X
    names = getattr(fitted, "feature_names_in_", None)
    row = None if names is None else row_of_mapping(X, names.tolist())
    return X if row is None else row


def as_table(fitted: Any, X: Any) -> Any:
    """Return a dict or a Series as a frame of one row, and any other X unchanged."""
    X = as_row(fitted, X)
    return X.frame if isinstance(X, Row) else X


# -- embedding ---------------------------------------------------------------------------------


def fitted_input(fitted: Any) -> Source:
    """Return the source of the fit, whatever `feature_extractor` has been set to since."""
    if hasattr(fitted, "features_"):
        return TableSource.of_fitted(fitted)
    if fitted.feature_extractor is None:  # the collate_fn is lost
        raise ValueError(
            "feature_extractor must not be None for queries of an estimator fitted with one: fit "
            "it anew, got None"
        )
    return fitted._architecture().input()


def embed_rows(
    network: NeighborNetwork, trend: Trend | None, given: Any, encoded: Tensor | Rows
) -> Embedded:
    """Embed rows for a bank with this trend, and raise if distances would overflow.

    `given` holds the unencoded rows, for a trend that takes the table.
    """
    embeddings = embed(network, encoded)
    largest = embeddings.abs().amax() if len(embeddings) else 0.0
    if not largest <= largest_entry(embeddings):
        raise ValueError(
            "Input X contains a value too large for float32, or training diverged: distances "
            f"between embeddings with entries of {float(largest):g} overflow"
        )
    inputs = None
    if trend is not None:
        assert isinstance(encoded, Tensor)  # of a table
        given = given.frame if isinstance(given, Row) and trend.takes_table else given
        inputs = TableRows(encoded, given if trend.takes_table else None)
    return Embedded(embeddings, network, inputs=inputs)


def query_blocks(fitted: Any, X: Any, with_added: bool = False) -> Iterator[Embedded]:
    """Validate and embed queries in blocks, with their times if a column has them.

    `with_added` adds the terms of unknown levels, which regressors need for distributions only.
    """
    bank, source, compared = fitted.bank_, fitted_input(fitted), None
    columns = None if bank.rule is None else bank.rule.columns
    device, time, levels = bank.device, bank.time, bank.unknown_levels
    times, added, start = None, None, 0
    for given, encoded in source.blocks(X):
        if start == 0:  # X is valid
            if time is not None and time.column is not None:
                times = torch.from_numpy(read_query_times(time, X, labels_of_fit(fitted) or ()))
                times = times.to(device)
            if levels is not None and (with_added or is_classifier(fitted)):
                unknown = source.unknown_levels(X)
                if unknown is not None and unknown.any():
                    added = levels.added(torch.from_numpy(unknown)).to(device)
        rows = slice(start, start + len(encoded))
        if columns is not None:
            columns, compared = columns.with_rows(bank.rule.read(given))
            compared = compared.to(device)
        yield replace(
            embed_rows(fitted.network_, bank.trend, given, encoded),
            times=None if times is None else times[rows],
            added=None if added is None else added[rows],
            compared=compared,
            columns=columns,
        )
        start = rows.stop


def read_queries(fitted: Any, X: Any, with_added: bool = False) -> Embedded:
    """Validate and embed queries like :func:`query_blocks`, unless they are embedded already."""
    if isinstance(X, Embedded):
        if X.network is not fitted.network_:
            raise ValueError("X must be embedded by this estimator as it is fitted now")
        return X
    blocks = [*query_blocks(fitted, X, with_added)]
    if len(blocks) == 1:
        return blocks[0]
    inputs = [block.inputs for block in blocks if block.inputs is not None]
    given = [rows.given for rows in inputs if rows.given is not None]
    joined: Any = {
        name: torch.cat([getattr(block, name) for block in blocks])
        for name in ("embeddings", "times", "added", "compared")
        if getattr(blocks[0], name) is not None
    }
    if inputs:
        encoded = torch.cat([rows.encoded for rows in inputs])
        joined["inputs"] = TableRows(encoded, stack_rows(*given) if given else None)
    return replace(blocks[-1], **joined)  # which knows the levels of all


def embeddings_of(fitted: Any, X: Any) -> Tensor:
    """Return the embeddings of queries, (n_queries, d), without their times."""
    if isinstance(X, Embedded):
        return read_queries(fitted, X).embeddings
    blocks = fitted_input(fitted).blocks(as_row(fitted, X))
    embedded = [embed_rows(fitted.network_, None, *block).embeddings for block in blocks]
    return torch.cat(embedded)


def encoded_features(fitted: Any, X: Any) -> Tensor:
    """Return the encoded features of queries, or of the bank's rows with ``X=None``."""
    X = as_row(fitted, X)
    inputs = TableRows(fitted.bank_.inputs) if X is None else read_queries(fitted, X).inputs
    assert inputs is not None
    return inputs.encoded


def times_given(fitted: Any, queries: Embedded, times: Any) -> Tensor | None:
    """Return times of rows, (n,), from their column or the argument, whichever fit has used."""
    time = fitted.bank_.time
    if time is None:
        if times is not None:
            raise ValueError("times need an estimator that was fitted with times")
        return None
    if time.column is not None:
        if times is not None and not (isinstance(times, str) and times == time.column):
            raise ValueError(
                f"times must be {time.column!r} or None, the column that was named in fit, got "
                f"{times!r:.100}"
            )
        return queries.times
    if times is None:
        raise ValueError("times must be given, as they were in fit, got None")
    values = torch.from_numpy(read_new_times(time, times, len(queries)))
    return values.to(queries.embeddings.device)


def embed_unknown(
    encoder: Any,
    network: NeighborNetwork,
    X: Tensor,
    column: int,
    rows: slice | np.ndarray = slice(None),
    rare: np.ndarray | None = None,
    table: Any = None,
) -> Embedded:
    """Embed rows of an encoded table as if a column's levels were unknown.

    Unknown levels are encoded like the `rare` rows (positions) or, without any, by the mean.
    """
    # In the `table`, rows get the level of a random row, since a model may refuse unknown levels.
    is_unknown = torch.from_numpy(encoder.source_ == column)
    typical = X.mean(dim=0) if rare is None or len(rare) == 0 else X[rare[0]]
    encoded, given = torch.where(is_unknown, typical, X[rows]), None
    if table is not None:
        donors = np.random.RandomState(0).permutation(len(X))
        given = exchange_column(table, np.arange(len(X))[rows], column, donors[rows])
    return Embedded(embed(network, encoded), network, inputs=TableRows(encoded, given))


# -- evaluation --------------------------------------------------------------------------------


def check_rule(eligibility: Any, or_mask: str = "") -> Eligibility | None:
    """Return a rule or None; raise a TypeError, which names `or_mask`, for any other value."""
    if eligibility is None or isinstance(eligibility, Eligibility):
        return eligibility
    remedy = ": compare it with metres" if isinstance(eligibility, Distance) else ""
    raise TypeError(
        "eligibility must be a rule of nona_sklearn.eligibility, such as same('district')"
        f"{or_mask}, got {eligibility!r:.100}{remedy}"
    )


def eligibility_of(
    bank: NeighborBank, eligibility: Any, n_queries: int
) -> StoredRule | Tensor | None:
    """Return a rule or a mask (n_queries, n) of a call, or None for the rule of the bank."""
    if eligibility is None:
        return None
    if isinstance(eligibility, Eligibility):
        if bank.rule is None:
            raise ValueError(
                f"eligibility={eligibility!r} compares columns that fit has not stored: give fit "
                "a rule that compares them"
            )
        return bank.rule.replaced_by(eligibility)
    mask, shape = np.asarray(eligibility), (n_queries, len(bank))
    if mask.dtype != bool:
        check_rule(eligibility, ", or a mask of bool")
    if mask.shape != shape:
        raise ValueError(
            f"eligibility must be a rule, or a mask of shape {shape}, for the queries and the "
            f"rows of the bank, got shape {mask.shape}"
        )
    return torch.tensor(mask).to(bank.device)


def evaluate(
    estimator: Any, X: Any, *, with_added: bool = False, eligibility: Any = None
) -> tuple[Any, Evaluation]:
    """Return a snapshot of the estimator, and the evaluation of queries on its bank.

    With ``X=None``, the bank's rows are evaluated by leave-one-out.
    """
    fitted = fitted_snapshot(estimator)
    bank, head, X = fitted.bank_, fitted.network_.head, as_row(fitted, X)
    ids = X.ids if isinstance(X, Embedded) else None
    if X is not None and ids is None:
        queries = read_queries(fitted, X, with_added)
        rule = eligibility_of(bank, eligibility, len(queries))
        return fitted, bank.evaluate(head, queries, eligibility=rule)
    if len(bank) < 2:
        raise ValueError("X=None needs at least 2 rows in the bank, it has 1")
    if ids is None:
        rule = eligibility_of(bank, eligibility, len(bank))
        return fitted, bank.evaluate(head, eligibility=rule)
    read_queries(fitted, X)  # an error if another network has embedded them
    rows = bank.positions(ids.cpu().numpy())
    evaluation = bank.evaluate_rows(head, rows, leave_out="itself")
    return fitted, bank.restrict(evaluation, eligibility_of(bank, eligibility, len(rows)), rows)


def evaluate_in_blocks(
    estimator: Any, X: Any, *, with_added: bool = False, eligibility: Any = None
) -> tuple[Any, Iterator[Evaluation]]:
    """Evaluate queries like :func:`evaluate`, in blocks of limited memory."""
    is_mask = eligibility is not None and not isinstance(eligibility, Eligibility)
    if X is None or isinstance(X, Embedded) or is_mask:
        fitted, evaluation = evaluate(estimator, X, with_added=with_added, eligibility=eligibility)
        return fitted, iter([with_rows(evaluation, query_names(fitted, X, len(evaluation)))])
    fitted = fitted_snapshot(estimator)
    bank, head, X = fitted.bank_, fitted.network_.head, as_row(fitted, X)
    rule = eligibility_of(bank, eligibility, 0)
    n_queries = _num_samples(X)
    names = query_names(fitted, X, n_queries)

    def evaluated() -> Iterator[Evaluation]:
        start = 0
        for queries in query_blocks(fitted, X, with_added):
            evaluation = bank.evaluate(head, queries, eligibility=rule)
            yield with_rows(evaluation, names[start : start + len(queries)])
            start += len(queries)

    blocks = evaluated()
    first = next(blocks)  # X is valid
    evaluations = chain([first], blocks)
    if fitted.verbose and len(first) < n_queries:
        return fitted, with_progress(evaluations, n_queries, "predictions")
    return fitted, evaluations


def with_rows(evaluation: Evaluation, names: np.ndarray) -> Evaluation:
    """Return the evaluation; warn about queries without an eligible row, or raise.

    `names` are those of the queries.
    """
    exclusion = evaluation.exclusion
    if not isinstance(exclusion, RuleExclusion | MaskExclusion):
        return evaluation
    evaluation.search()  # kept for the prediction: by it, the rule is not evaluated again
    if (isolated := evaluation.isolated) is None:
        return evaluation
    which = names[isolated.cpu().numpy()]
    rule = exclusion.rule.rule if isinstance(exclusion, RuleExclusion) else None
    message = (
        f"too few rows are eligible for {len(which)} of {len(names)} queries, such as query "
        f"{which[:1].tolist()[0]!r:.100}, by {'the mask' if rule is None else repr(rule)}"
    )
    if isinstance(rule, Required) and rule.on_fewer == "raise":
        raise ValueError(message)
    of_classes = isinstance(evaluation.one_head, ClassHead)
    effect = "their classes are equally probable" if of_classes else "their predictions are NaN"
    warnings.warn(f"{message}: {effect}", UserWarning, stacklevel=4)
    return evaluation


def explanation_of(
    fitted: Any, evaluation: Evaluation, X: Any, n_neighbors: int | None
) -> Explanation:
    """Return the explanation of the predictions in an evaluation of queries `X`."""
    bank = fitted.bank_
    if n_neighbors is not None:
        check_n_neighbors(n_neighbors, len(bank) - (evaluation.exclusion is not None))
    names, exclusion = bank.names_of(slice(None)), evaluation.exclusion
    explanation = Explanation.from_evaluation(
        evaluation,
        n_neighbors,
        votes=is_classifier(fitted),
        names=names,
        queries=names if X is None else labels_of(as_row(fitted, X)),
        taken=set() if bank.names is None else {*bank.names},
        target_names=bank.target_names,
    )
    places = exclusion.places() if isinstance(exclusion, RuleExclusion) else None
    return replace(explanation, places=places)


def trained(fitted: Any) -> tuple[NeighborNetwork, NeighborBank]:
    """Return the trained networks, and the bank in their space.

    If rows are found among the features, both are part of the trend.
    """
    bank = fitted.bank_
    if bank.trend is not None and bank.trend.networks is not None:
        network, bank = bank.trend.networks
        return network, replace(bank, sources=None)
    return fitted.network_, bank


def number_of_neighbors(estimator: Any, k: int | None) -> int:
    """Return k or, if it is None, the estimator's `n_neighbors`, or 5 if that is no number."""
    if k is not None:
        return k
    return estimator.n_neighbors if is_whole(estimator.n_neighbors, 1) else N_NEIGHBORS


def ids_or_names(bank: NeighborBank, positions: np.ndarray, names: bool) -> np.ndarray:
    """Return ids of rows, or their names, with -1 or None at a position of -1."""
    labels = bank.names_of(positions) if names else bank.ids.cpu().numpy()[positions]
    if (is_missing := positions < 0).any():
        labels = labels.astype(object) if names else labels
        labels[is_missing] = None if names else -1
    return labels


def query_names(fitted: Any, X: Any, n_queries: int) -> np.ndarray:
    """Return the names of queries, (n_queries,), or of the bank's rows; else their numbers."""
    names = fitted.bank_.names_of(slice(None)) if X is None else labels_of(as_row(fitted, X))
    return np.arange(n_queries) if names is None else names


def refuse_targets_alone(X: Any, y: Any) -> None:
    """Raise if targets are given without queries."""
    if X is None and y is not None:
        raise ValueError("y must be None with X=None: the targets of the bank's rows are known")


def drop_isolated(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple:
    """Return the arguments of a score without the queries that have no earlier row.

    Warn if they are without an eligible one.
    """
    fitted = fitted_snapshot(estimator)
    bank, network = fitted.bank_, fitted.network_
    rows = Names(bank.names) if X is None else X
    warn_of_other_order(4, X=rows, y=y, sample_weight=sample_weight)
    y = in_order_of(bank.target_names, y)
    ordered = bank.time is not None and (X is None or bank.time.column is not None)
    if not ordered and bank.rule is None:  # no query is isolated
        return X, y, sample_weight
    if X is None:
        queries = Embedded(bank.embeddings, network, ids=bank.ids)
    else:
        queries = read_queries(fitted, X)
    check_consistent_length(queries, y, sample_weight)
    evaluation = bank.evaluate(network.head, None if X is None else queries)
    _, positions = evaluation.without_isolated(np.arange(len(queries)))
    if len(positions) == 0:
        raise ValueError(
            "score needs queries that an earlier, or eligible, row exists for, got none"
        )
    if bank.rule is not None and len(positions) < len(queries):
        warnings.warn(
            f"score leaves out {len(queries) - len(positions)} of {len(queries)} queries, for "
            "which too few rows are eligible",
            UserWarning,
            stacklevel=3,
        )
    weight = None if sample_weight is None else _safe_indexing(sample_weight, positions)
    return queries[positions], _safe_indexing(y, positions), weight
