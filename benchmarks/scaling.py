"""How the cost of a prediction grows with the bank and with the queries.

Times of both families, and the exponents of the power laws through them.
"""

import torch

from nona_sklearn import NONAHead, SoftStep

from .internals import Embedded, make_bank
from .timing import fitted_exponent, time_in_turns

N_DIMENSIONS = 32
BANKS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
QUERIES = (64, 256, 1024, 4096)
N_QUERIES, N_BANK = 256, 100_000  # of the one, while the other grows
HEADS = {"l2": NONAHead(), "l2 + S1": NONAHead(step=SoftStep("s1"))}


def measure(banks, queries, n_bank, n_queries, repeats):
    """Seconds by size, of each head and of what grows."""
    generator = torch.Generator().manual_seed(0)
    neighbors = torch.randn(max(banks), N_DIMENSIONS, generator=generator)
    targets = torch.randn(max(banks), generator=generator, dtype=torch.float64)
    query = torch.randn(max(queries), N_DIMENSIONS, generator=generator)

    def predict(head, n_bank, n_queries):
        bank = make_bank(neighbors[:n_bank], targets[:n_bank])
        return lambda: bank.evaluate(head.eval(), Embedded(query[:n_queries])).mean()

    curves = {}
    for name, head in HEADS.items():
        rivals = {size: predict(head, size, n_queries) for size in banks}
        curves[name, "bank rows"] = time_in_turns(rivals, repeats)
        rivals = {size: predict(head, n_bank, size) for size in queries}
        curves[name, "queries"] = time_in_turns(rivals, repeats)
    return curves


def add_arguments(parser):
    parser.add_argument("--picture", help="file to draw the curves into")


def run(args):
    """Time, print both curves, check that they are straight."""
    sizes = (BANKS, QUERIES, N_BANK, N_QUERIES, 3)
    curves = measure(*(((100, 1000), (16, 64), 100, 16, 1) if args.quick else sizes))
    exponents = {key: fitted_exponent(list(c), list(c.values())) for key, c in curves.items()}
    for (name, unit), curve in curves.items():
        print(f"{name}, seconds by {unit}; exponent {exponents[name, unit]:.2f}")
        for size, seconds in curve.items():
            print(f"  {size:>10,}{seconds:10.3f}")
    if args.picture:
        draw(curves, args.picture)
    if not args.quick:
        assert max(exponents.values()) < 1.1


def draw(curves, path):
    """Draw both families of curves beside a straight line."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    fixed = {"bank rows": f"{N_QUERIES:,} queries", "queries": f"{N_BANK:,} bank rows"}
    for ax, unit in zip(axes, fixed, strict=True):
        for (name, of), curve in curves.items():
            if of == unit:
                ax.loglog(list(curve), list(curve.values()), "o-", label=name)
                sizes, start = list(curve), min(curve.values())
        ax.loglog(
            sizes, [start * size / sizes[0] for size in sizes], ":", color="gray", label="linear"
        )
        ax.set(xlabel=unit, ylabel="seconds", title=fixed[unit])
        ax.legend()
    figure.savefig(path, dpi=120)
