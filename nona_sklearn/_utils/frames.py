"""Tables to return: DataFrames, or Bunches of their columns where pandas is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch


def table(columns: dict[str, np.ndarray]) -> Any:
    """Make a table of named columns, which are its attributes too.

    Parameters
    ----------
    columns : dict of ndarray of shape (n,)
        The columns, in their order.

    Returns
    -------
    DataFrame, or Bunch of arrays without pandas
        Names of one kind, such as dates, get its type. A column that lacks an entry stays as it
        is: whole numbers would become floats, which do not hold them all.
    """
    try:
        import pandas as pd
    except ImportError:
        return Bunch(**columns)
    frame = pd.DataFrame(columns)
    complete = frame.loc[:, frame.notna().all()]
    return frame.assign(**complete.infer_objects())
