"""Houses sold in Ames, Iowa."""

from importlib.resources import files

from sklearn.utils import Bunch

from .._utils.validation import check_flag, import_extra

DESCRIPTION = """\
Houses sold in Ames, Iowa, from 2006 to 2010: 2,413 ordinary sales, in the order of their dates,
with 25 features and the price in US dollars. A sixth of them are duplexes, townhouses or
conversions.

================= ==========================================================================
feature           meaning
================= ==========================================================================
neighborhood      one of 28 neighbourhoods
longitude         degrees
latitude          degrees
lot_area          square feet
lot_frontage      street along the lot, in feet; missing for 19 % of the houses
building          single family, duplex, townhouse, ...
style             storeys, or split level
year_built        year
remodeled         year of the last remodelling, or the year built
condition         overall, from very poor to excellent
living_area       above ground, in square feet
basement_area     square feet
basement_exposure walls at garden level: no exposure, minimum, average, good, or no basement
foundation        concrete, cinder block, brick and tile, stone, slab or wood
full_baths        number, above ground
half_baths        number, above ground
bedrooms          number, above ground
rooms             number without bathrooms, above ground
fireplaces        number
heating           quality, from poor to excellent
central_air       boolean
garage            attached, detached, built in, ..., or no garage
garage_cars       number of cars
garage_area       square feet
sold              first day of the month of the sale
================= ==========================================================================

Collected by Dean De Cock: Ames, Iowa: Alternative to the Boston Housing Data as an End of Semester
Regression Project, Journal of Statistics Education 19(3), 2011. This table is a part of the table
`ames` of the R package modeldata (MIT licence, copyright 2023 modeldata authors), with other names
of columns and categories.
"""


def load_ames(*, return_X_y=False):
    """Load houses sold in Ames, Iowa: 25 features and a price.

    The table has categories, missing values, coordinates and dates, as tables of users have. It
    comes with the package (80 kB), so nothing is downloaded. It needs pandas.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return `data` and `target` alone.

    Returns
    -------
    data : Bunch
        With the attributes

        data : DataFrame of shape (2413, 25)
            The features. The index has a name for each house.
        target : Series of shape (2413,)
            The prices, in US dollars.
        frame : DataFrame of shape (2413, 26)
            Both.
        feature_names : list of str
            The names of the columns of `data`.
        target_names : list of str
            The name of the target.
        DESCR : str
            What the columns mean, where the table comes from, and its licence.
    (data, target) : tuple
        If `return_X_y`.

    Raises
    ------
    ValueError
        If `return_X_y` is neither True nor False.

    References
    ----------
    D. De Cock: Ames, Iowa: Alternative to the Boston Housing Data as an End of Semester Regression
    Project. Journal of Statistics Education 19(3), 2011.

    Examples
    --------
    >>> from nona_sklearn.datasets import load_ames
    >>> X, y = load_ames(return_X_y=True)
    >>> print(f"{len(X)} houses, {X.shape[1]} features, median price {y.median():,.0f} dollars")
    2413 houses, 25 features, median price 159,000 dollars
    """
    pd = import_extra("load_ames", "pandas", extra="demo")
    check_flag("return_X_y", return_X_y)
    path = files(__name__.rpartition(".")[0]) / "data" / "ames.csv.gz"
    with path.open("rb") as file:
        frame = pd.read_csv(
            file, compression="gzip", index_col="house", parse_dates=["sold"], date_format="%Y-%m"
        )
    X, y = frame.drop(columns="price"), frame["price"]
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        frame=frame,
        feature_names=list(X.columns),
        target_names=["price"],
        DESCR=DESCRIPTION,
    )
