"""How long an answer from many shards takes, simulated: some are slow, and some fail.

A shard answers after a time of median 1, lognormal; one ask in a hundred takes ten times as long,
one in a thousand is never answered, which is noticed after TIMEOUT. An answer from all shards is
as late as the last. `asked again` asks another machine with the same shard where there is no
answer after AGAIN; `partial` does without whoever has not answered by DEADLINE.
"""

import numpy as np

SPREAD, SLOW, FAILS, TIMEOUT = 0.3, 0.01, 0.001, 100.0
AGAIN, DEADLINE = 3.0, 6.0
N_ANSWERS = 20_000


def evaluate(generator, n_answers, n_shards):
    """Times until each shard answers, (n_answers, n_shards)."""
    shape = n_answers, n_shards
    times = np.exp(SPREAD * generator.standard_normal(shape))
    times *= np.where(generator.random(shape) < SLOW, 10.0, 1.0)
    retried = TIMEOUT + np.exp(SPREAD * generator.standard_normal(shape))
    return np.where(generator.random(shape) < FAILS, retried, times)


def run(args):
    """Simulate, print, check the claims."""
    n_answers = 200 if args.quick else N_ANSWERS
    generator = np.random.default_rng(0)
    print("shards   what is done      median   99 %   99.9 %   shards missing")
    for n_shards in (4, 16, 64, 256):
        first, second = (evaluate(generator, n_answers, n_shards) for _ in range(2))
        again = np.minimum(first, np.where(first > AGAIN, AGAIN + second, np.inf))
        answers = {
            "all are awaited": (first, 0.0),
            "asked again": (again, 0.0),
            "again, partial": (np.minimum(again, DEADLINE), (again > DEADLINE).mean()),
        }
        late = {}
        for name, (times, missing) in answers.items():
            last = times.max(axis=1)
            late[name] = np.quantile(last, 0.99)
            median, most = np.quantile(last, [0.5, 0.999])
            print(
                f"{n_shards:6}   {name:16}  {median:6.1f} {late[name]:6.1f}   {most:6.1f}"
                f"   {missing:.1e}"
            )
        if not args.quick:
            assert late["again, partial"] <= late["asked again"] <= late["all are awaited"]
            assert late["asked again"] < 20
