"""The bank: embeddings and targets stored at fit, and every answer that comes out of them."""

import warnings
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ._stream import map_blocks, mean_of, stream_each, stream_weights
from .attention import AverageHead, NONAHead
from .softstep import largest

SELECTION_ROUNDS, LEAST_SHARE = 20, 0.01


@dataclass(frozen=True)
class NeighborBank:
    """Labelled neighbours. An edit makes a new bank, so that whoever reads the old one may go on.

    Parameters
    ----------
    embeddings : Tensor of shape (n, d)
        Where the neighbours are.
    targets : Tensor of shape (n,) or (n, n_outputs)
        What they are worth.
    ids : int Tensor of shape (n,), optional
        What they are called, ascending; their row numbers by default.
    next_id : int Tensor of shape (), optional
        What the next neighbour will be called. No name is given twice.
    """

    embeddings: Tensor
    targets: Tensor
    ids: Tensor = None
    next_id: Tensor = None

    def __post_init__(self):
        if self.ids is None:
            vars(self)["ids"] = torch.arange(len(self), device=self.embeddings.device)
        if self.next_id is None:
            vars(self)["next_id"] = torch.tensor(len(self))

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getstate__(self) -> dict[str, np.ndarray]:
        """Pickle from the CPU, as arrays: joblib maps those from disk with ``mmap_mode``."""
        state = {name: tensor.cpu().numpy() for name, tensor in vars(self).items()}
        if len(self) == self.next_id:  # no row was removed: names are row numbers
            del state["ids"], state["next_id"]
        return state

    def __setstate__(self, state: dict[str, np.ndarray]) -> None:
        with warnings.catch_warnings():
            # A mapped array may be read-only; nothing writes into a bank.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self.__init__(**{name: torch.as_tensor(array) for name, array in state.items()})

    # -- editing -------------------------------------------------------------------------

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Where the neighbours of these names are in the bank, shape of `ids`.

        Raises
        ------
        ValueError
            If there is no such neighbour, naming up to ten that are not.
        """
        known = self.ids.cpu().numpy()
        unknown = np.setdiff1d(ids, known)
        if len(unknown):
            raise ValueError(f"ids must be in the bank, got unknown {unknown[:10].tolist()}")
        return np.searchsorted(known, ids)

    def add(self, embeddings: Tensor, targets: Tensor) -> "NeighborBank":
        """Return a bank with more neighbours, after those it has."""
        new = self.next_id + torch.arange(len(embeddings))
        return NeighborBank(
            torch.cat([self.embeddings, embeddings]),
            torch.cat([self.targets, targets]),
            torch.cat([self.ids, new.to(self.ids)]),
            self.next_id + len(embeddings),
        )

    def keep(self, positions: np.ndarray) -> "NeighborBank":
        """Return a bank of the neighbours at these positions, in the order they have now."""
        rows = torch.as_tensor(np.sort(positions), device=self.ids.device)
        parts = {name: vars(self)[name][rows] for name in ("embeddings", "targets", "ids")}
        return replace(self, **parts)

    # -- asking --------------------------------------------------------------------------

    def predict(
        self, head: NONAHead | AverageHead, query: Tensor, leave_one_out: bool = False
    ) -> Tensor:
        """Weighted mean of the targets, shape (q,) or (q, n_outputs), in float64.

        Parameters
        ----------
        head : NONAHead or AverageHead
            Gives the weights.
        query : Tensor of shape (q, d)
            Embeddings of the queries.
        leave_one_out : bool, default=False
            Whether the queries are the bank's own rows, none of which may be its own
            neighbour.
        """
        values = self.targets.double().reshape(len(self), -1)

        def predict_block(_, members):
            return torch.stack([mean_of(member, values)[0] for member in members]).mean(dim=0)

        blocks = map_blocks(predict_block, head, query, self.embeddings, leave_one_out)
        return _join(blocks, values[:0]).reshape(len(query), *self.targets.shape[1:])

    def sparse_weights(
        self,
        head: NONAHead | AverageHead,
        query: Tensor,
        leave_one_out: bool = False,
        tolerance: float = 0.0,
    ) -> sparse.csr_array:
        """Weights (q, n) above a tolerance, in float64. The rest as for :meth:`predict`."""

        def weigh_block(_, members):
            tiles = [
                sparse.csr_array(torch.threshold_(tile, tolerance, 0.0).cpu().numpy())
                for _, tile in stream_weights(members)
            ]
            return sparse.hstack(tiles, format="csr", dtype=np.float64)

        blocks = map_blocks(weigh_block, head, query, self.embeddings, leave_one_out)
        weights = sparse.vstack([sparse.csr_array((0, len(self))), *blocks], format="csr")
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def heaviest(
        self, head: NONAHead | AverageHead, query: Tensor, k: int, leave_one_out: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Weights and positions of the k heaviest neighbours, (q, k) each, heaviest first.

        Parameters as for :meth:`predict`.
        """

        def search_block(queries, members):
            weights = query.new_full((queries.stop - queries.start, k), -1.0)
            indices = torch.zeros_like(weights, dtype=torch.long)
            for rows, tile in stream_weights(members):
                if leave_one_out:  # itself comes last, even among neighbours of no weight
                    tile.diagonal(queries.start - rows.start).fill_(-1.0)
                values, positions = largest(tile, min(k, tile.shape[1]))
                weights, best = torch.cat([weights, values], dim=1).topk(k, dim=1)
                indices = torch.cat([indices, positions + rows.start], dim=1).gather(1, best)
            return torch.cat([weights.double(), indices.double()], dim=1)

        blocks = map_blocks(search_block, head, query, self.embeddings, leave_one_out)
        weights, indices = _join(blocks, query.new_zeros(0, 2 * k).double()).split(k, dim=1)
        return weights, indices.long()

    def effective_sizes(
        self, head: NONAHead | AverageHead, query: Tensor, leave_one_out: bool = False
    ) -> Tensor:
        """One over the sum of squared weights, (q,). Parameters as for :meth:`predict`."""

        def measure_block(_, members):
            squares = [tile.double().square().sum(dim=1) for _, tile in stream_weights(members)]
            return sum(squares).reciprocal()

        blocks = map_blocks(measure_block, head, query, self.embeddings, leave_one_out)
        return _join(blocks, query.new_zeros(0).double())

    def step_sums(
        self, head: NONAHead | AverageHead, query: Tensor, leave_one_out: bool = False
    ) -> Tensor:
        """Each query's steps, summed over the bank, (q,), a mean over the heads.

        Parameters as for :meth:`predict`; every head has a step.
        """

        def measure_block(_, members):
            return torch.stack([member.step_sum() for member in members]).mean(dim=0)

        blocks = map_blocks(
            measure_block, head, query, self.embeddings, leave_one_out, whole_rows=True
        )
        return _join(blocks, query.new_zeros(0).double())

    def influence(
        self,
        head: NONAHead | AverageHead,
        query: Tensor,
        leave_one_out: bool = False,
        residuals: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What each neighbour does to the predictions.

        Without neighbour j, the others share its weight: the prediction m changes by
        ``w_j (m - y_j) / (1 - w_j)``.

        Parameters
        ----------
        head, query, leave_one_out
            As for :meth:`predict`.
        residuals : Tensor of shape (q, n_outputs), optional
            Prediction minus truth of each query.

        Returns
        -------
        weight : Tensor of shape (n,)
            Sum of its weights over the queries.
        change : Tensor of shape (n,)
            Mean over the queries, and sum over the outputs, of the squared change of a
            prediction without it.
        error : Tensor of shape (n,)
            The same of the change of the squared error; that of `change` without `residuals`.
        """
        values = self.targets.double().reshape(len(self), -1)

        totals, adding = values.new_zeros(len(self), 3), Lock()

        def measure_block(queries, members):
            means = [mean_of(member, values)[0] for member in members]
            for rows, tiles in stream_each(members):
                weight = sum(tiles).double().sum(dim=0) / len(members)
                parts = [torch.stack([weight, 0 * weight, 0 * weight], dim=1)]
                for j, column in enumerate(values[rows].T):
                    change = sum(
                        tile / (1 - tile) * (mean[:, j : j + 1] - column)
                        for tile, mean in zip(map(_below_one, tiles), means, strict=True)
                    ) / len(members)
                    residual = 0.0 if residuals is None else residuals[queries, j : j + 1]
                    squares = change.square(), change * (change + 2 * residual)
                    parts.append(torch.stack([0 * weight, *(s.sum(dim=0) for s in squares)], 1))
                with adding:
                    totals[rows] += sum(parts)

        map_blocks(measure_block, head, query, self.embeddings, leave_one_out)
        weight, change, error = totals.unbind(dim=1)
        return weight, change / len(query), error / len(query)

    def representatives(
        self, head: NONAHead | AverageHead, query: Tensor, n_rows: int
    ) -> np.ndarray:
        """Positions of rows that carry the queries' weights together, (n_rows,).

        Greedily, SELECTION_ROUNDS times a share of them, those with the largest gain in the sum
        over the queries of the square root of the weight on rows that are kept. The root makes
        returns diminish: a query that has a row needs the next one less.
        """
        kept = torch.zeros(len(self), dtype=torch.float64, device=query.device)
        for done in range(1, SELECTION_ROUNDS + 1):
            share = NeighborBank(self.embeddings, kept).predict(head, query)
            gain = self._received(head, query, (share + LEAST_SHARE).rsqrt())
            gain.masked_fill_(kept > 0, -1.0)
            missing = n_rows * done // SELECTION_ROUNDS - int(kept.sum())
            kept[gain.topk(missing).indices] = 1.0
        return kept.nonzero()[:, 0].cpu().numpy()

    def _received(self, head, query, importance):
        """Each neighbour's weight, summed over queries of some importance (q,), (n,)."""
        totals, adding = importance.new_zeros(len(self)), Lock()

        def weigh_block(queries, members):
            for rows, tile in stream_weights(members):
                received = importance[queries] @ tile.double()
                with adding:
                    totals[rows] += received

        map_blocks(weigh_block, head, query, self.embeddings)
        return totals


def _below_one(weights: Tensor) -> Tensor:
    # Nobody can say what a prediction would be without the only neighbour that it has.
    return weights.double().clamp_max_(1 - torch.finfo(torch.float32).eps)


def _join(blocks: list[Tensor], empty: Tensor) -> Tensor:
    return torch.cat([empty, *blocks])
