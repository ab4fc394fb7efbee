"""The head of classes: sums of weights become probabilities."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from .._utils.validation import check_flag
from .head import TEMPERATURE_MULTIPLES, NONAHead, Refinement, multiples_of
from .prediction import ClassRows

START_SMOOTHING = 0.02  # of a probability
TRAINING_SMOOTHING = 1e-3  # without a learned one: keeps the loss of an absent class finite
#: A network that separates the classes in training is overconfident.
CLASS_TEMPERATURE_MULTIPLES = (*TEMPERATURE_MULTIPLES, 1.3, 1.6, 2.0, 2.5, 3.0)
SMOOTHING_MULTIPLES = (1.0, 0.3, 3.0, 10.0, 30.0)  # of its odds


class ClassHead(NONAHead):
    """:class:`NONAHead` of classes: their weights' sums become probabilities.

    ``P(c | q) ~ ((1 - smoothing) sum_j w_j 1[y_j = c] + smoothing prior_c) exp(h_c(q))``,
    normalised. Without `h` and smoothing, this is section 3 of [1]_ with one-hot targets: each
    neighbour votes for its class with its weight. With `h`, the votes for class c are multiplied
    by ``exp(h_c(q))``, so each probability is still a sum over rows. Smoothing keeps
    probabilities above 0 if all neighbours are of one class.

    Parameters
    ----------
    prior : Tensor of shape (C,)
        Frequency of each class; those of several outputs side by side.
    sizes : sequence of int, optional
        Number of classes of each output; None: one output.
    smoothing : bool, default=True
        Whether to learn the share that the classes' frequencies have in each probability, so
        that none is 0. False: none in evaluation, and a thousandth in training.
    **kwargs
        Parameters of :class:`NONAHead`. With ``n_adjusted``, the number of all classes, the last
        columns of a query's embedding are `h`; those of its neighbours are ignored.

    Notes
    -----
    Shapes as for :class:`NONAHead`; targets are one-hot, (n, C), and the output is of
    probabilities, (q, C). ``adjustment_scale=None`` omits `h` and smoothing. Beyond
    ``trust_radius``, `h` is attenuated.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import ClassHead
    >>> head = ClassHead(prior=torch.tensor([0.5, 0.5]), smoothing=False).eval()
    >>> head(torch.zeros(1, 2), torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.eye(2))
    tensor([[0.8808, 0.1192]])
    """

    rows_class = ClassRows
    temperature_multiples = CLASS_TEMPERATURE_MULTIPLES

    def __init__(
        self,
        *args,
        prior: Tensor,
        sizes: Sequence[int] | None = None,
        smoothing: bool = True,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        check_flag("smoothing", smoothing)
        self.sizes = (len(prior),) if sizes is None else tuple(sizes)
        self.prior: Tensor
        self.register_buffer("prior", prior, persistent=False)  # of the data, not learned
        if smoothing:
            start = torch.tensor(START_SMOOTHING).logit()
            self.logit_smoothing: Tensor = nn.Parameter(start)

    def noise_refinements(self) -> Iterator[Refinement]:
        if hasattr(self, "logit_smoothing"):
            yield multiples_of(self.logit_smoothing, SMOOTHING_MULTIPLES)

    @property
    def shrinks(self) -> bool:
        return False  # classes have no residuals

    @property
    def smoothing(self) -> Tensor | float:
        """Share of the classes' frequencies in each probability."""
        if hasattr(self, "logit_smoothing"):
            return self.logit_smoothing.sigmoid()
        return TRAINING_SMOOTHING if self.training else 0.0

    def odds(self, own: Tensor, attenuation: Tensor | float = 1.0) -> Tensor:
        """Factor of each class's votes for each query, (q, C), `exp(h)`.

        The largest of each output is 1, so that none overflows.
        """
        blocks = (attenuation * own).split(self.sizes, dim=1)
        return torch.cat([(h - h.amax(dim=1, keepdim=True)).exp() for h in blocks], dim=1)

    def totals(self, masses: Tensor) -> Tensor:
        """Sum over the classes of each output, (q, C): the same for all of an output."""
        blocks = masses.split(self.sizes, dim=1)
        return torch.cat([b.sum(dim=1, keepdim=True).expand_as(b) for b in blocks], dim=1)

    def centred(self, logarithms: Tensor) -> Tensor:
        """Logarithms of probabilities less their mean over the classes of each output, (q, C)."""
        return logarithms - self.totals(logarithms) / self.totals(torch.ones_like(logarithms))

    def smoothed(self, masses: Tensor, smoothing: Tensor | float) -> Tensor:
        """Mix the classes' weights, (q, C), with a share of their frequencies."""
        # In this form, they sum to 1 to the last digits for any rounding of the share.
        return masses + smoothing * (self.prior.to(masses.dtype) - masses)

    def votes(
        self, masses: Tensor, smoothing: Tensor | float, odds: Tensor | float = 1.0
    ) -> Tensor:
        """Turn the classes' weights into votes, (q, C), in proportion to their probabilities."""
        return self.smoothed(masses, smoothing) * odds

    def normalized(self, votes: Tensor) -> Tensor:
        """Turn votes into probabilities, (q, C); 0, not NaN, without votes."""
        return votes / self.totals(votes).clamp_min(torch.finfo(votes.dtype).tiny)

    def unknown(self, means: Tensor) -> Tensor:
        """Probabilities, (C,): all classes of an output are equally probable."""
        return torch.cat([means.new_full((n,), 1 / n) for n in self.sizes])
