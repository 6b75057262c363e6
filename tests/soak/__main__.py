"""``python -m tests.soak``: let kai work for hours on a real API server, or for days in virtual time; 1 if it grows."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from tests.soak.churn import grown
from tests.soak.churn import soak as soak_in_virtual_time
from tests.soak.live import Plan, soak

_WARM: Final = 3
_HOUR: Final = 3600.0


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="how long, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=0.4, help="hours that do not count")
    parser.add_argument("--pods", type=int, default=100_000, help="how many pods run all the time")
    parser.add_argument("--apart", type=float, default=10.0, help="seconds from sample to sample")
    parser.add_argument("--rests-apart", type=float, default=600.0, help="seconds from rest to rest of the load")
    parser.add_argument("--seed", type=int, default=1, help="what jobs come is drawn from it")
    parser.add_argument("--samples", type=Path, help="the file that what was sampled is written to, as JSON")
    parser.add_argument("--virtual-days", type=float, help="in virtual time instead, a round of churn each hour")
    parser.add_argument("--workloads", type=int, default=16, help="how many workloads a round in virtual time has")
    given = parser.parse_args()
    if given.virtual_days:
        return _virtual(round(given.virtual_days * 24), given.workloads)
    return soak(
        Plan(
            seconds=given.hours * _HOUR,
            warm_up=given.warm_up * _HOUR,
            pods=given.pods,
            apart=given.apart,
            rests_apart=given.rests_apart,
            seed=given.seed,
            samples=given.samples,
        )
    )


def _virtual(rounds: int, workloads: int) -> int:
    since = time.process_time()
    moments = soak_in_virtual_time(rounds, workloads, apart=_HOUR)
    last, found = moments[-1], grown(moments, _WARM)
    for name, (before, after) in found.items():
        sys.stdout.write(f"{name}: {before} in the first {_WARM} rounds, {after} after {rounds}\n")
    sys.stdout.write(
        f"{last.time / _HOUR:.1f} hours of virtual time, {last.passed} objects created, {last.bound} pods bound, "
        f"{last.tasks} tasks ({moments[0].tasks} after the first round), {len(found)} counts grew; "
        f"{time.process_time() - since:.0f} s of processor time\n"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
