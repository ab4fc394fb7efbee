"""AS-Softmax (arXiv 2508.03175) against the log loss, for the classes of a neighbour head.

Small tables, pictures under a small convolutional network, and the ratings of reviews. The paper
claims that the loss speeds up training and that its validation loss follows the accuracy. One
network each, so that the average of several hides nothing. A second fit by the log loss with
other random numbers shows how much is chance. Seconds are the processor's, since other work may
wait beside it. Results are kept in ``benchmarks/results/as_softmax.csv``: a run goes on where
the last one stopped.
"""

import time
from itertools import product

import numpy as np
import pandas as pd
from skorch.callbacks import Callback

from nona_sklearn import ASSoftmax, FeatureExtractor, NONAClassifier, TrainingOptions
from nona_sklearn.losses import ASSoftmaxLoss

from . import class_data, real_data
from .finetune_data import SmallCNN
from .ledger import SEEDS, complete
from .quick import shorten
from .scores import (
    judge_classes,
    mean_over_splits,
    print_ranked,
    score,
)

BASELINE, CHANCE = "log loss", "log loss, again"
MARGINS = (0.05, 0.1, 0.3)
TABLES = list(real_data.CLASSES)
SETS = (
    {name: real_data.CLASSES[name] for name in TABLES}
    | {"ratings": class_data.ratings}
    | class_data.PICTURES
)
QUICK = {
    "wine": real_data.CLASSES["wine"],
    "few digits": class_data.few(class_data.digit_pictures),
}
#: Parameters of each variant's loss; margin 1 is the log loss.
VARIANTS = {BASELINE: {}, CHANCE: {}} | {
    f"margin {m}": {"loss": ASSoftmax(margin=m)} for m in MARGINS
}
COSTS = ["seconds_per_epoch", "epochs_to_best", "steps_to_best", "seconds_to_best"]
LOSSES = ["valid_loss", "valid_as_softmax"]
AGREEMENT = [f"{kind}_{name}" for kind in ("rho", "missed") for name in LOSSES]


class Watch(Callback):
    """Note in the history of each epoch how the validation rows fare, and what it costs.

    Parameters
    ----------
    margin : float
        Of AS-Softmax's own loss of the validation rows.
    """

    def __init__(self, margin):
        self.margin = margin

    def on_epoch_begin(self, net, **kwargs):
        self.start_ = time.process_time()

    def on_batch_end(self, net, batch=None, training=True, y_pred=None, **kwargs):
        if training:
            return
        truth, loss = batch[1], ASSoftmaxLoss(margin=self.margin)  # of an output; trains
        right = y_pred.argmax(dim=1) == truth.argmax(dim=1)
        net.history.record("valid_accuracy", right.double().mean().item())
        net.history.record("valid_as_softmax", loss(y_pred, truth).item())

    def on_epoch_end(self, net, **kwargs):
        net.history.record("cpu", time.process_time() - self.start_)


def make_model(variant, seed, pictures):
    """Build a classifier of one network that is watched."""
    changes = VARIANTS[variant]
    clf = NONAClassifier(
        n_estimators=1,
        random_state=seed + 100 * (variant == CHANCE),
        training=TrainingOptions(callbacks=[Watch(getattr(changes.get("loss"), "margin", 0.1))]),
        **changes,
    )
    if not pictures:
        return clf
    return clf.set_params(
        feature_extractor=FeatureExtractor(SmallCNN, learning_rate=1e-3),
        training__learning_rate_init=1e-3,
        training__batch_size=32,
        max_iter=100,
    )


def sum_up(history):
    """Measure the costs until the best epoch, and how losses and accuracy of epochs agree.

    Of either validation loss: its rank correlation with the accuracy, and by how much the
    accuracy where it is lowest falls short of that of the most accurate epoch.
    """
    epochs = pd.DataFrame(history)
    until = epochs.loc[: epochs["valid_loss"].idxmin()]
    accuracy = epochs["valid_accuracy"]
    watched = epochs[[*LOSSES, "valid_accuracy"]]
    rho = watched.corr(method="spearman")["valid_accuracy"]  # NaN if always as accurate
    summary = {
        "epochs": len(epochs),
        "seconds_per_epoch": epochs["cpu"].mean(),
        "epochs_to_best": len(until),
        "steps_to_best": until["train_batch_count"].sum(),
        "seconds_to_best": until["cpu"].sum(),
    }
    for name in LOSSES:
        summary[f"rho_{name}"] = rho[name]
        summary[f"missed_{name}"] = accuracy.max() - accuracy[epochs[name].idxmin()]
    return summary


def fit_and_judge(data, model, seed):
    """Score a classifier on one split, and sum up how it was trained."""
    X_train, X_test, y_train, y_test = class_data.split(data, seed)
    scores = score(model, X_train, X_test, y_train, y_test, judge=judge_classes)
    return scores | sum_up(model.history_)


def measure(set_name, variant, seed):
    """Score one variant on one split."""
    model = make_model(variant, seed, set_name in class_data.PICTURES)
    return fit_and_judge(SETS[set_name](), model, seed)


def measure_quickly(set_name, variant, seed):
    """The same on few rows and epochs."""
    model = make_model(variant, seed, set_name == "few digits")
    return fit_and_judge(QUICK[set_name](), shorten(model), seed)


def differences(results, column):
    """Differences to the log loss on the same split: (set, seed) by variant."""
    wide = results.pivot(index=["set", "seed"], columns="model", values=column)
    return wide.drop(columns=BASELINE).sub(wide[BASELINE], axis=0)


def mean_and_error(each):
    """Means over fits, and their standard errors."""
    return pd.DataFrame({"mean": each.mean(), "error": each.sem(), "fits": each.count()})


def ratios(results, column):
    """Geometric means of ratios to the log loss on the same split, and a factor of error."""
    logs = differences(results.assign(log=np.log(results[column])), "log")
    summary = mean_and_error(logs)
    return pd.DataFrame({"ratio": np.exp(summary["mean"]), "error": np.exp(summary["error"])})


def report(results, sets):
    """Print the tables; returns them by name."""
    results = results[results["set"].isin(list(sets))]
    rivals = [name for name in VARIANTS if name in set(results["model"]) - {BASELINE}]
    loss, error, n_test = (
        mean_over_splits(results, name, sets) for name in ("log_loss", "error", "n_test")
    )
    print_ranked("Log loss", loss, BASELINE)
    print_ranked("Error rate", error, BASELINE, added=1 / n_test.iloc[0])
    gains = mean_and_error(-100 * differences(results, "error")).loc[rivals]
    print("\nAccuracy, points more than by the log loss on the same split")
    print(gains.round(2).to_string())
    costs = pd.concat({name: ratios(results, name) for name in COSTS}, axis=1).loc[rivals]
    print("\nRelative to the log loss on the same split, times or by a factor of error")
    print(costs.round(2).to_string())
    agreement = results.pivot_table(index="model", values=AGREEMENT).loc[[BASELINE, *rivals]]
    print(
        "\nOver epochs, of the log loss of validation rows and of AS-Softmax's: rank correlation"
    )
    print("with the accuracy (rho), accuracy at the lowest less than the highest (missed)")
    print(agreement.round(3).to_string())
    return {"loss": loss, "gains": gains, "costs": costs, "agreement": agreement}


def check(tables):
    """Assert what was measured."""
    accuracy, agreement = tables["gains"]["mean"], tables["agreement"]
    costs = tables["costs"].xs("ratio", axis=1, level=1)
    variants = [f"margin {m}" for m in MARGINS]
    # Neither more accurate nor faster.
    assert (accuracy[variants] < 0.5).all()
    assert (costs.loc[variants, ["seconds_per_epoch", "seconds_to_best"]] > 0.9).all(axis=None)
    # AS-Softmax's own loss follows the accuracy better than the log loss does, but no better than
    # the log loss does in a training by the log loss.
    log, own = (agreement[f"rho_{name}"] for name in LOSSES)
    assert log[BASELINE] < own[variants].mean() < log[variants].mean()


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--models", nargs="+", default=list(VARIANTS))


def run(args):
    """Run what is missing, print the tables, check the claims."""
    sets, how = (QUICK, measure_quickly) if args.quick else (args.sets, measure)
    measure_quickly("wine", BASELINE, 0)  # the costs of a first fit alone are not counted
    # The variants in turns, as their seconds are compared.
    cases = product(sets, [0] if args.quick else SEEDS, args.models)
    cases = [(set_name, model, seed) for set_name, seed, model in cases]
    results = complete(args.results / "as_softmax.csv", ["set", "model", "seed"], cases, how)
    if args.quick:
        report(results, QUICK)
        return
    n_fits = results["set"].value_counts()
    finished = [name for name in SETS if n_fits.get(name) == len(VARIANTS) * len(SEEDS)]
    if len(finished) > len(SETS) / 2:
        check(report(results, finished))
