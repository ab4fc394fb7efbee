"""How long a prediction from many shards takes, simulated: some are slow, and some fail.

A shard's result takes a time of median 1, lognormal. One in a hundred takes ten times as long,
and one in a thousand fails, which is noticed after TIMEOUT. A prediction is as late as its last
shard. `second request` goes to another machine with the same shard if there is no result after
AGAIN; `partial` does without the shards that have no result by DEADLINE.
"""

import numpy as np

SPREAD, SLOW, FAILS, TIMEOUT = 0.3, 0.01, 0.001, 100.0
AGAIN, DEADLINE = 3.0, 6.0
N_PREDICTIONS = 20_000


def evaluate(generator, n_predictions, n_shards):
    """Times until the result of each shard, (n_predictions, n_shards)."""
    shape = n_predictions, n_shards
    times = np.exp(SPREAD * generator.standard_normal(shape))
    times *= np.where(generator.random(shape) < SLOW, 10.0, 1.0)
    retried = TIMEOUT + np.exp(SPREAD * generator.standard_normal(shape))
    return np.where(generator.random(shape) < FAILS, retried, times)


def run(args):
    """Simulate, print, check the claims."""
    n_predictions = 200 if args.quick else N_PREDICTIONS
    generator = np.random.default_rng(0)
    print("shards   what is done      median   99 %   99.9 %   shards missing")
    for n_shards in (4, 16, 64, 256):
        first, second = (evaluate(generator, n_predictions, n_shards) for _ in range(2))
        again = np.minimum(first, np.where(first > AGAIN, AGAIN + second, np.inf))
        outcomes = {
            "all are awaited": (first, 0.0),
            "second request": (again, 0.0),
            "second, partial": (np.minimum(again, DEADLINE), (again > DEADLINE).mean()),
        }
        late = {}
        for name, (times, missing) in outcomes.items():
            last = times.max(axis=1)
            late[name] = np.quantile(last, 0.99)
            median, most = np.quantile(last, [0.5, 0.999])
            print(
                f"{n_shards:6}   {name:16}  {median:6.1f} {late[name]:6.1f}   {most:6.1f}"
                f"   {missing:.1e}"
            )
        if not args.quick:
            assert late["second, partial"] <= late["second request"] <= late["all are awaited"]
            assert late["second request"] < 20
