"""Weight averaging: epochs are judged by the running average of their steps' weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback
from torch import nn

from nona_sklearn import NONARegressor, TrainingOptions

EPOCHS = 4


class Watch(Callback):
    """Keeps a layer's weights after each step, and as they stand when an epoch ends."""

    steps: list = []
    ends: list = []

    @staticmethod
    def look(net):
        return net.module_.embedding.layers[0].weight.detach().double().clone()

    def on_train_begin(self, net, **kwargs):
        self.steps.clear()
        self.ends.clear()

    def on_batch_end(self, net, training, **kwargs):
        if training:
            self.steps.append(self.look(net))

    def on_epoch_end(self, net, **kwargs):
        self.ends.append(self.look(net))


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).normal(size=(80, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


def fit(data, average=None, **changes):
    """Fit, with a running average or without, whatever the kind of input has."""
    settings = {
        "n_estimators": 1,
        "max_iter": EPOCHS,
        "adjust": False,
        "hidden_layer_sizes": (8,),
        "numerical_embedding": None,
        "training": TrainingOptions(callbacks=[Watch()]),
        "random_state": 0,
    }
    reg = NONARegressor(**settings | changes)
    with pytest.MonkeyPatch.context() as patch:
        if average is not None:
            make = NONARegressor._architecture
            patch.setattr(
                NONARegressor,
                "_architecture",
                lambda self: replace(make(self), averages=average),
            )
        return reg.fit(*data)


def average(steps):
    """Shamir and Zhang's recursion, with their eta = 8."""
    mean = steps[0]
    for t, step in enumerate(steps[1:], start=2):
        mean = mean + 9 / (t + 8) * (step - mean)
    return mean


@pytest.mark.parametrize("validation_fraction", [0.15, None])
def test_an_epoch_is_kept_as_the_average_of_its_steps(data, validation_fraction):
    reg = fit(data, validation_fraction=validation_fraction)
    steps, ends = Watch.steps, Watch.ends
    an_epoch = len(steps) // EPOCHS
    # Steps are float32, and so is their average: rounded once for each of them.
    close = {"atol": len(steps) * torch.finfo(torch.float32).eps, "rtol": 0}
    for i, end in enumerate(ends, start=1):
        torch.testing.assert_close(end, average(steps[: i * an_epoch]), **close)
    which = "valid_loss_best" if validation_fraction else "train_loss_best"
    best = max(i for i, epoch in enumerate(reg.history_) if epoch[which])
    kept = reg.network_.embedding.layers[0].weight
    torch.testing.assert_close(kept, ends[best], atol=0, rtol=0)


def test_the_average_looks_on(data):
    """Steps go on from where they were, whether they are averaged or not."""
    fit(data)
    followed = list(Watch.steps)
    fit(data, average=False)
    assert len(followed) == len(Watch.steps)
    for ours, alone in zip(followed, Watch.steps, strict=True):
        assert torch.equal(ours, alone)


def test_without_it_an_epoch_is_kept_as_it_ended(data):
    fit(data, average=False)
    an_epoch = len(Watch.steps) // EPOCHS
    for end, last in zip(Watch.ends, Watch.steps[an_epoch - 1 :: an_epoch], strict=True):
        assert torch.equal(end, last)


def test_an_extractor_is_averaged_only_if_average_is_true(data):
    settings = {"feature_extractor": lambda: nn.Linear(2, 4), "training": None, "max_iter": 2}
    auto, without, averaged = (
        fit(data, **settings, average=average).predict(data[0]) for average in (None, False, True)
    )
    assert np.array_equal(auto, without)
    assert not np.array_equal(auto, averaged)
