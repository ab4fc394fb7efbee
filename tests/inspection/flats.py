"""A raw table of flats, whose names and levels hold tags."""

import numpy as np
import pandas as pd


def make_flats(n_rows, evil):
    """Features and rents of some flats; `evil` is the name of a district."""
    random = np.random.RandomState(0)
    X = pd.DataFrame(
        {
            "area <m²>": random.uniform(20, 120, n_rows),
            "district": random.choice([evil, "north & east"], n_rows),
            "built": pd.to_datetime("1990-01-01")
            + pd.to_timedelta(random.randint(9000, size=n_rows), "D"),
            "floor": random.choice([0.0, 1.0, np.nan], n_rows),
        },
        index=[f"flat <i>{i}</i>" for i in range(n_rows)],
    )
    rent = 10 * X["area <m²>"] + 200 * (X.district == evil) + 10 * random.randn(n_rows)
    return X, rent
