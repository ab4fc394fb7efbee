"""Tables to return: DataFrames, or Bunches of their columns where pandas is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.utils import Bunch

if TYPE_CHECKING:
    import pandas as pd

    #: A Bunch is untyped, so that what is done with a DataFrame needs no check.
    Table: TypeAlias = pd.DataFrame | Bunch


def table(columns: dict[str, np.ndarray]) -> Any:
    """Make a table of named columns: a DataFrame or, without pandas, a Bunch of arrays.

    A column of objects gets their type, such as datetime64, unless it has gaps: integers would
    become floats, which do not represent all of them.
    """
    try:
        import pandas as pd
    except ImportError:
        return Bunch(**columns)
    frame = pd.DataFrame(columns)
    complete = frame.loc[:, frame.notna().all()]
    return frame.assign(**complete.infer_objects())
