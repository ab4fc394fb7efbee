"""Results that are kept: a run goes on where the last one stopped."""

from itertools import product

import pandas as pd

SEEDS = range(3)


def complete(path, keys, cases, measure):
    """Measure what a CSV file does not hold yet, and save each result at once.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    keys : list of str
        Columns that identify a measurement.
    cases : iterable of tuple
        Values of `keys`, in the order to measure them.
    measure : callable
        Takes the values of `keys`, returns the other columns as a dict.

    Returns
    -------
    DataFrame
        All that the file holds now.
    """
    path.parent.mkdir(exist_ok=True)
    held = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=keys)
    done = set(held[keys].itertuples(index=False, name=None))
    for values in cases:
        if values in done:
            continue
        row = pd.DataFrame([dict(zip(keys, values, strict=True)) | measure(*values)])
        append(path, row)
        print(row.round(4).to_string(index=False, header=False), flush=True)
    return pd.read_csv(path)


def append(path, row):
    """Append a row to a CSV file; earlier rows are empty in columns that are new."""
    if not path.exists():
        row.to_csv(path, index=False)
        return
    held = pd.read_csv(path, dtype=str, keep_default_na=False)  # numbers as they were written
    columns = [*held, *row.columns.difference(held.columns, sort=False)]
    if len(columns) > held.shape[1]:
        held.reindex(columns=columns, fill_value="").to_csv(path, index=False)
    row.reindex(columns=columns).to_csv(path, mode="a", index=False, header=False)


def complete_splits(name, args, sets, measure):
    """Measure models on the splits of sets, one model after the other; one split if quick.

    Parameters
    ----------
    name : str
        The file's, within ``args.results``.
    args : argparse.Namespace
        With models, quick and results.
    sets : iterable of str
        The sets.
    measure : callable
        Takes a set, a model and the number of a split, returns the other columns as a dict.

    Returns
    -------
    DataFrame
        All that the file holds now.
    """
    cases = product(args.models, sets, [0] if args.quick else SEEDS)
    cases = [(set_name, model, seed) for model, set_name, seed in cases]
    return complete(args.results / name, ["set", "model", "seed"], cases, measure)
