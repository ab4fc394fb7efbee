"""What stands against us: how people prepare a table, and models behind that preparation."""

import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

NUMBERS = ["number", "bool"]


def dates_to_numbers(X):
    """Replace dates by month, day, day of the week, hour, and seconds since 1970."""
    dates = X.select_dtypes("datetime")
    parts = {
        f"{name}_{part}": getattr(dates[name].dt, part)
        for name in dates
        for part in ("month", "day", "day_of_week", "hour")
    }
    seconds = {
        f"{name}_seconds": (dates[name] - pd.Timestamp(0)).dt.total_seconds() for name in dates
    }
    return X.drop(columns=dates.columns).assign(**parts, **seconds)


def categories_of(X):
    """Names of the columns that hold neither numbers nor dates."""
    return list(X.select_dtypes(exclude=[*NUMBERS, "datetime"]))


def gaps_to_levels(X):
    """Make categories str, as CatBoost requires, and gaps one more level."""
    words = X[categories_of(X)].astype(object)
    return X.assign(**words.where(words.notna(), "missing").astype(str))


class FrequentCategories(TransformerMixin, BaseEstimator):
    """Make columns of words pandas categories, the 255 most frequent; others become gaps.

    HistGradientBoosting takes no more.
    """

    def fit(self, X, y=None):
        words = X[categories_of(X)].astype(object)
        self.categories_ = {name: words[name].value_counts().index[:255] for name in words}
        return self

    def transform(self, X):
        columns = {
            name: pd.Categorical.from_codes(levels.get_indexer(X[name]), levels)
            for name, levels in self.categories_.items()
        }
        return X.assign(**columns)


def make_encoder():
    """Build the usual ColumnTransformer: medians and indicators, one-hot for the frequent."""
    encoder = make_column_transformer(
        (
            SimpleImputer(strategy="median", add_indicator=True),
            make_column_selector(dtype_include=NUMBERS),
        ),
        (
            OneHotEncoder(
                handle_unknown="infrequent_if_exist", max_categories=20, sparse_output=False
            ),
            make_column_selector(dtype_exclude=NUMBERS),
        ),
    )
    return make_pipeline(FunctionTransformer(dates_to_numbers), encoder)


def boosted(model):
    """Put a HistGradientBoosting behind what makes its categories."""
    return make_pipeline(FunctionTransformer(dates_to_numbers), FrequentCategories(), model)


def catboosted(kind, X, seed):
    """Build one of CatBoost's estimators for tables like X, which it takes with categories."""
    model = kind(
        cat_features=categories_of(X) or None,  # a list of none cannot be cloned
        random_seed=seed,
        verbose=False,
        allow_writing_files=False,
        thread_count=1,
    )
    return make_pipeline(
        FunctionTransformer(dates_to_numbers), FunctionTransformer(gaps_to_levels), model
    )


def tuned_neighbors(knn, scoring=None):
    """Let cross-validation choose the number of neighbours and how they weigh."""
    grid = {"n_neighbors": [1, 3, 5, 10, 20, 40], "weights": ["uniform", "distance"]}
    return GridSearchCV(knn, grid, scoring=scoring)
