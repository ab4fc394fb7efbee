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
        Names of one kind, such as dates, get its type.
    """
    try:
        import pandas as pd
    except ImportError:
        return Bunch(**columns)
    return pd.DataFrame(columns).infer_objects()
