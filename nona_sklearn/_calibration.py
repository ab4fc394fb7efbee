"""Calibration: how wide the distributions must be, learned on rows that were not trained on.

The power of the weights and the noise are chosen by the continuous ranked probability score
(CRPS).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ._bank import NeighborBank
from ._distribution import NOISES, Calibration, NoisyTargets
from ._question import Question
from .attention import AverageHead, NONAHead

POWERS = (1.0, 0.125, 0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 4.0)
CALIBRATION_PAIRS, LEAST_CALIBRATION_ROWS = 2**23, 100  # takes a second or so


def fit_calibration(question: Question, residual: Tensor) -> Calibration:
    """Find the power and the noise with the lowest CRPS.

    Parameters
    ----------
    question : Question
        Rows whose errors are known.
    residual : Tensor of shape (q, n_outputs)
        Truth minus prediction.

    Returns
    -------
    Calibration
        The best of a grid.
    """
    values = question.neighbors.columns
    error = residual.square().mean(dim=0).sqrt()
    outputs = [
        NoisyTargets(y, e or 1.0)
        for y, e in zip(values.T.contiguous(), error.tolist(), strict=True)
    ]

    def score_block(queries, each):
        scores = []
        for weights in each:
            score = 0.0
            for behind, column in zip(outputs, residual[queries].T, strict=True):
                truth = weights @ behind.targets + column  # rather than move the weights' mean
                score = score + behind.crps(weights, truth) / behind.noise
            scores.append(score)
        return torch.stack(scores)

    scores = torch.stack(question.with_weights(POWERS, score_block)).sum(dim=0).cpu().numpy()
    power, noise = np.unravel_index(scores.argmin(), scores.shape)
    return Calibration(POWERS[power], tuple((NOISES[noise] * error).tolist()))


def calibrate_on_held_out(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[tuple[np.ndarray, np.ndarray | None]],
) -> Calibration:
    """Calibrate on validation rows, each predicted by a network that did not train on it.

    One network errs more than the average of all does. By how much follows from how far their
    predictions lie apart: the average's squared error is the networks' mean squared error less
    their variance about it (Krogh and Vedelsby's decomposition).

    Parameters
    ----------
    head : NONAHead or AverageHead
        The trained heads.
    bank : NeighborBank
        All rows given to fit. A row's group, if it has one, says nothing of how far new groups
        are from the bank, so it is left out with the row.
    splits : list of tuple (ndarray, ndarray or None)
        Training and validation rows of each network.

    Returns
    -------
    Calibration
        For the distributions of all networks together.
    """
    networks = one_by_one(head, bank)
    most = _n_rows(bank) // len(networks) + 1
    held_out, residuals = [], []
    for (own_head, own_bank), (train, valid) in zip(networks, splits, strict=True):
        assert valid is not None  # where one network has validation rows, all have
        rows = valid[:most]
        seen = own_bank.in_order(train).ask(own_head, own_bank.embeddings[rows])
        held_out.append(rows)
        residuals.append((bank.targets[rows] - seen.mean()).reshape(len(rows), -1))
    rows, first = np.unique(np.concatenate(held_out), return_index=True)  # rows may be shared
    residual = torch.cat(residuals)[first]

    means = torch.stack(
        [
            ask_of_rows(own_head, own_bank, rows).mean().reshape(len(rows), -1)
            for own_head, own_bank in networks
        ]
    )
    apart = means.var(dim=0, correction=0).mean(dim=0)
    share = 1 - apart / residual.square().mean(dim=0).clamp_min(1e-300)
    residual = residual * share.clamp(0.25, 1).sqrt()
    return fit_calibration(ask_of_rows(head, bank, rows), residual)


def calibrate_on_bank(head: NONAHead | AverageHead, bank: NeighborBank) -> Calibration:
    """Calibrate on the bank's own rows, each without itself, or without its group."""
    rows = np.random.RandomState(0).permutation(len(bank))[: _n_rows(bank)]
    question = ask_of_rows(head, bank, rows)
    residual = bank.targets[rows] - question.mean()
    return fit_calibration(question, residual.reshape(len(rows), -1))


def ask_of_rows(head: NONAHead | AverageHead, bank: NeighborBank, rows: np.ndarray) -> Question:
    """Ask about some of the bank's rows, each without itself or its group."""
    everybody = bank.ask(head, leave_out="group")
    assert everybody.exclusion is not None
    labels = replace(everybody.exclusion, queries=everybody.exclusion.neighbors[rows])
    return replace(everybody, query=bank.embeddings[rows], exclusion=labels)


def one_by_one(
    head: NONAHead | AverageHead, bank: NeighborBank
) -> list[tuple[NONAHead, NeighborBank]]:
    """Take an average of networks apart: each one's head, and the bank as it sees it."""
    parts = head.parts(bank.embeddings[:0], bank.embeddings)
    return [
        (own, replace(bank, neighbors=replace(bank.neighbors, embeddings=embeddings)))
        for own, _, embeddings in parts
    ]


def _n_rows(bank: NeighborBank) -> int:
    return max(LEAST_CALIBRATION_ROWS, CALIBRATION_PAIRS // len(bank))
