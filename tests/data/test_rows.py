import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.model_selection import KFold, train_test_split
from sklearn.utils import _safe_indexing
from skorch.dataset import Dataset as SkorchDataset
from skorch.helper import SliceDataset, SliceDict
from torch.utils.data import Dataset, TensorDataset

from nona_sklearn import Rows

IMAGES = np.arange(24, dtype=np.float32).reshape(6, 2, 2)


def spell(texts):
    """A tokenizer: letters as numbers, padded to the longest text."""
    codes = [torch.tensor([ord(letter) for letter in text]) for text in texts]
    return {"codes": torch.nn.utils.rnn.pad_sequence(codes, batch_first=True)}


class Pairs(Dataset):
    """Images with targets, and a count of the rows that were read."""

    def __init__(self):
        self.n_read = 0

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, i):
        self.n_read += 1
        return torch.from_numpy(IMAGES[i]), float(i)


@pytest.mark.parametrize(
    "source",
    [
        IMAGES,
        torch.from_numpy(IMAGES),
        IMAGES.astype(np.float64),
        list(IMAGES),
        list(torch.from_numpy(IMAGES)),
        IMAGES.tolist(),
        TensorDataset(torch.from_numpy(IMAGES)),
        Pairs(),
        SkorchDataset(IMAGES, np.arange(6)),
        SliceDataset(Pairs()),
    ],
    ids=lambda source: type(source).__name__,
)
def test_every_source_makes_the_same_batch(source):
    batch = Rows(source)[np.array([4, 1])].batch()
    assert batch.dtype == torch.float32
    assert torch.equal(batch, torch.from_numpy(IMAGES[[4, 1]]))


@pytest.mark.parametrize("mapping", [dict, SliceDict], ids=["dict", "SliceDict"])
def test_a_dict_makes_a_dict(mapping):
    source = mapping(pixels=IMAGES, number=np.arange(6))
    rows = Rows(source)
    assert len(rows) == 6
    batch = rows[torch.tensor([5, 0])].batch()
    assert torch.equal(batch["pixels"], torch.from_numpy(IMAGES[[5, 0]]))
    assert batch["number"].tolist() == [5, 0]
    assert batch["number"].dtype == torch.int64


@pytest.mark.parametrize("wrap", [list, np.array, pd.Series], ids=["list", "array", "Series"])
def test_texts_are_collated(wrap):
    rows = Rows(wrap(["ab", "c", "def"]), spell)
    assert rows[[1, 0]].batch()["codes"].tolist() == [[99, 0], [97, 98]]
    shortest, longest = rows.extremes().batch()["codes"].tolist()
    assert shortest == [99, 0, 0]
    assert longest == [100, 101, 102]


def test_collate_fn_is_called_with_rows_of_dicts_and_arrays():
    rows = Rows({"a": np.arange(3)}, lambda rows: torch.tensor([2.0 * row["a"] for row in rows]))
    assert rows.batch().tolist() == [0, 2, 4]
    rows = Rows(IMAGES, lambda rows: torch.stack([torch.tensor(row.sum()) for row in rows]))
    assert rows[2:4].batch().tolist() == [38, 54]


def test_integers_stay_integers():
    assert Rows(np.arange(6).reshape(3, 2)).batch().dtype == torch.int64


def test_a_selection_reads_and_copies_nothing():
    dataset = Pairs()
    dataset.n_read = 0
    rows = Rows(dataset)
    train, test = train_test_split(rows, test_size=2, random_state=0)
    assert isinstance(train, Rows)
    assert (len(train), len(test)) == (4, 2)
    seen = dataset.n_read
    assert sorted([*train.numbers, *test.numbers]) == list(range(6))
    assert train.source is dataset
    test.batch()
    assert dataset.n_read == seen + 2


def test_scikit_learn_splits_rows():
    rows = Rows({"pixels": IMAGES})
    for train, test in KFold(3).split(rows):
        part = _safe_indexing(rows, test)
        assert torch.equal(part.batch()["pixels"], torch.from_numpy(IMAGES[test]))
        assert len(_safe_indexing(rows, train)) == 4


def test_selections_of_selections_and_blocks():
    rows = Rows(IMAGES)[[5, 3, 1, 0]][torch.tensor([2, 0])]
    assert rows.numbers.tolist() == [1, 5]
    assert rows[0].shape == (1,)
    many = Rows(np.zeros((200, 1)))
    assert [len(block) for block in many.split(4096)] == [64, 64, 64, 8]
    assert [len(block) for block in Rows(IMAGES).split(4)] == [4, 2]


def test_targets_of_a_dataset():
    assert Rows(Pairs())[[3, 1]].targets() == [3.0, 1.0]
    assert Rows(IMAGES).targets() is None
    assert Rows(SliceDataset(Pairs())).targets() is None


@pytest.mark.parametrize(
    ("source", "collate_fn", "message"),
    [
        ("one text", spell, "X must be an array, .* a list or a torch Dataset, got 'one text'"),
        (None, None, "X must be an array, .*, got None"),
        (3.5, None, "X must be an array, .*, got 3.5"),
        (csr_array(np.eye(3)), None, "X must be an array, .*, got .*[Ss]parse"),
        ([], spell, "X must hold rows, got none"),
        ({}, None, "X must hold rows, got none"),
        (np.zeros((0, 3)), None, "X must hold rows, got none"),
        (["a", "b"], None, "collate_fn must turn a list of texts into a batch, .* got None"),
        (["a", ""], spell, r"texts that are not empty, got X\[1\]=''"),
        (["a", " \n"], spell, r"texts that are not empty, got X\[1\]=' \\n'"),
        (["a", None], spell, r"texts that are not empty, got X\[1\]=None"),
        (["a", float("nan")], spell, r"texts that are not empty, got X\[1\]=nan"),
        ([[1.0], [1.0, 2.0]], None, "X must hold rows of one shape, or collate_fn"),
        ([torch.ones(1), torch.ones(2)], None, "X must hold rows of one shape, or collate_fn"),
        ({"a": [[1], [1, 2]]}, None, r"X\['a'\] must be an array, got ragged rows"),
        ({"a": 3.0}, None, r"X\['a'\] must have a row for each sample"),
        ({"a": np.ones(3), "b": np.ones(4)}, None, "arrays of one length, got {'a': 3, 'b': 4}"),
        (np.array([[1.0, np.nan]]), None, "Input X contains NaN"),
        (np.ma.array([[1, 2]], mask=[[0, 1]]), None, "Input X contains NaN"),
        ({"a": np.ma.array([[1, 2]], mask=[[0, 1]])}, None, r"Input X\['a'\] contains NaN"),
        (
            np.ma.array(["a", "b"], mask=[0, 1]),
            spell,
            r"texts that are not empty, got X\[1\]=None",
        ),
        ({"a": np.array([1.0, np.inf])}, None, r"Input X\['a'\] contains infinity"),
        (torch.tensor([[1.0, torch.nan]]), None, "X must hold finite numbers, got NaN"),
        (np.array([object(), object()]), None, "X must hold numbers or texts"),
        (np.array([["a"], ["b"]]), spell, "X must hold numbers or texts"),
    ],
)
def test_bad_sources(source, collate_fn, message):
    with pytest.raises(ValueError, match=message):
        Rows(source, collate_fn)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Rows(["a", "bc"], lambda texts: {"codes": [[1], [2, 3]]}), "padded to one length, got"),
        (
            Rows(["a", "bc"], lambda texts: texts),
            r"collate_fn must return a tensor .*\['a', 'bc'\]",
        ),
        (Rows(["a", "bc"], lambda texts: None), "collate_fn must return a tensor .* got None"),
        (Rows(["a", "bc"], lambda texts: 3), "collate_fn must return a tensor .* got 3"),
    ],
)
def test_bad_batches(rows, message):
    with pytest.raises(ValueError, match=message):
        rows.batch()


def test_rows_of_a_dataset_that_differ_in_shape():
    class Ragged(Pairs):
        def __getitem__(self, i):
            return torch.zeros(i + 1)

    with pytest.raises(ValueError, match="X must hold rows of one shape, or collate_fn"):
        Rows(Ragged()).batch()
