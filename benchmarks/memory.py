"""Peak memory of a prediction: a bank of a million rows, ten thousand queries.

Each measurement runs in a process of its own, whose peak resident memory the system keeps.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import torch

from nona_sklearn import NONAHead, SoftStep

from .internals import Embedded, make_bank

ROOT = Path(__file__).parents[1]
N_DIMENSIONS = 32
LIMIT = 200  # MB


def ranked():
    """Build a head that gives weight to the nearest 2 % of the bank."""
    step = SoftStep("s1", on="rank")
    step.start_at(0.99)
    return NONAHead("log_l2", step)


HEADS = {
    "l2": lambda: NONAHead(),
    "l2 + S1": lambda: NONAHead(step=SoftStep("s1")),
    "log_l2 + S1 on ranks": ranked,
}


def peak():
    """Peak resident memory of this process so far, in MB."""
    status = Path("/proc/self/status").read_text()  # getrusage counts what the parent had, too
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024


def measure(head, n_bank, n_queries):
    """Print the peak above the bank and the queries, in MB."""
    generator = torch.Generator().manual_seed(0)
    neighbors = torch.randn(n_bank, N_DIMENSIONS, generator=generator)
    targets = torch.randn(n_bank, generator=generator, dtype=torch.float64)
    query = torch.randn(n_queries, N_DIMENSIONS, generator=generator)
    bank, head = make_bank(neighbors, targets), HEADS[head]().eval()
    few = make_bank(neighbors[:100], targets[:100])
    few.evaluate(head, Embedded(query[:1])).mean()  # libraries load on first use
    before = peak()
    bank.evaluate(head, Embedded(query)).mean()
    print(peak() - before)


def measure_apart(name, *what):
    """Let a benchmark measure in a new process; returns what it prints, in MB or a tuple."""
    command = [sys.executable, "-m", __package__, name, "--measure", *map(str, what)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    numbers = tuple(map(float, done.stdout.split()))
    return numbers if len(numbers) > 1 else numbers[0]


def sizes(n_queries):
    """Heads, and numbers of bank rows and of queries."""
    return [
        ("l2", 10_000, 1000),
        ("l2", 100_000, 1000),
        ("l2", 1_000_000, n_queries),
        ("l2 + S1", 1_000_000, n_queries),
        ("log_l2 + S1 on ranks", 1_000_000, 20),  # each query searches the whole bank
    ]


def add_arguments(parser):
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)


def run(args):
    """Measure, print the table, check the claim."""
    if args.measure:
        head, n_bank, n_queries = args.measure
        measure(head, int(n_bank), int(n_queries))
        return
    print(f"{'head':24s}{'bank':>11s}{'queries':>10s}{'peak, MB':>10s}{'pairs, MB':>12s}")
    peaks = []
    for head, n_bank, n_queries in [("l2", 1000, 10)] if args.quick else sizes(args.queries):
        peaks.append(measure_apart("memory", head, n_bank, n_queries))
        pairs = 4 * n_bank * n_queries / 2**20
        print(f"{head:24s}{n_bank:11,}{n_queries:10,}{peaks[-1]:10.0f}{pairs:12,.0f}", flush=True)
    if not args.quick:
        assert max(peaks) < LIMIT
