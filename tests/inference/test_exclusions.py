"""Excluded pairs: what some of the queries, and some of the rows, have of all."""

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import RuleColumns, StoredRule
from inner.inference import (
    LabelExclusion,
    MaskExclusion,
    RuleExclusion,
    TimeExclusion,
    as_mask,
    count_admitted,
)

from nona_sklearn.eligibility import same

Q, N = 5, 8
LABELS = LabelExclusion(torch.arange(Q), torch.arange(N) % 6)
TIMES = TimeExclusion(torch.arange(Q) + 2.5, torch.arange(N).double(), labels=LABELS)
X = pd.DataFrame({"level": list("abcabcab")})
COLUMNS, NUMBERS = RuleColumns.fit(same("level"), X)
RULE = StoredRule(same("level"), COLUMNS)
ADMITTED = torch.from_numpy(np.random.default_rng(0).random((Q, N)) < 0.5)
EXCLUSIONS = {
    "labels": LABELS,
    "times": TIMES,
    "rule": RuleExclusion(RULE, NUMBERS[:Q], NUMBERS),
    "rule, labels": RuleExclusion(RULE, NUMBERS[:Q], NUMBERS, LABELS),
    "rule, times": RuleExclusion(RULE, NUMBERS[:Q], NUMBERS, TIMES),
    "mask": MaskExclusion(ADMITTED),
    "mask, labels": MaskExclusion(ADMITTED, LABELS),
    "mask, times": MaskExclusion(ADMITTED, TIMES),
}


@pytest.mark.parametrize("name", EXCLUSIONS)
def test_parts_of_an_exclusion(name, monkeypatch):
    exclusion = EXCLUSIONS[name]
    mask = as_mask(exclusion.of(), Q, N)
    queries, rows = torch.tensor([3, 0, 4]), torch.tensor([6, 1, 2, 7])
    assert torch.equal(as_mask(exclusion[queries].of(), 3, N), mask[queries])
    assert torch.equal(as_mask(exclusion.of(slice(1, 3)), 2, N), mask[1:3])
    assert torch.equal(as_mask(exclusion.among(rows).of(), Q, 4), mask[:, rows])
    assert 0 < mask.sum() < mask.numel()
    some = torch.tensor([[1, 0, 7], [2, 4, 3], [5, 2, 6], [0, 1, 2], [7, 6, 0]])
    monkeypatch.setattr("inner.inference.neighbors.FEW_ROWS", 0)
    assert torch.equal(exclusion.at(some), mask.gather(1, some))
    excluded = exclusion.of() if name == "labels" else exclusion
    assert torch.equal(count_admitted(excluded, Q, N), (~mask).sum(dim=1))
    isolated = exclusion.isolated()
    assert isolated is None or torch.equal(isolated, mask.all(dim=1))


def test_limits_of_times_are_excluded():
    """A neighbour at the limit is not earlier; one at the end is between."""
    times = torch.arange(N).double()
    between = TimeExclusion(torch.tensor([2.0, 4.0]), times, ends=torch.tensor([5.0, 4.0]))
    positions = torch.arange(N).expand(2, -1)
    assert torch.equal(between.at(positions), between.of())
    assert between.of()[0].nonzero()[:, 0].tolist() == [2, 3, 4, 5]


def test_no_row_is_admitted_where_too_few_are():
    rule = StoredRule(same("level").at_least(3), COLUMNS)
    exclusion = RuleExclusion(rule, NUMBERS[:3], NUMBERS)
    assert exclusion.described()["n_eligible"].tolist() == [3, 3, 2]
    assert count_admitted(exclusion, 3, N).tolist() == [3, 3, 0]


def test_an_exclusion_joins_its_parts():
    of_labels, of_times = as_mask(LABELS.of(), Q, N), TIMES.of()
    assert of_times[of_labels].all()
    of_rule = EXCLUSIONS["rule"].of()
    assert of_rule.tolist() == (X[["level"]].to_numpy()[:Q] != X["level"].to_numpy()).tolist()
    assert torch.equal(EXCLUSIONS["rule, times"].of(), of_rule | of_times)
    assert torch.equal(EXCLUSIONS["mask, labels"].of(), ~ADMITTED | of_labels)


def test_rows_that_lack_others_tell_of_no_required_number():
    """Of some rows too few may be admitted, of all enough."""
    rule = StoredRule(same("level").at_least(3), COLUMNS)
    assert RuleExclusion(rule, NUMBERS[:1], NUMBERS).of().tolist() == [
        [level != "a" for level in X["level"]]
    ]
    found = rule.of_some(NUMBERS[:1], NUMBERS[None, :5], torch.zeros(1, 5, dtype=torch.bool))
    assert not found.any()
    found = rule.of_some(NUMBERS[:1], NUMBERS[None, :7], torch.zeros(1, 7, dtype=torch.bool))
    assert found.tolist() == [[level == "a" for level in X["level"][:7]]]
