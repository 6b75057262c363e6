"""Try every claim on many clusters."""

import argparse
import sys
from collections import Counter

from tests.truth.caps import CAPS
from tests.truth.claims import CLAIMS
from tests.truth.differing import DIFFERING
from tests.truth.shares import SHARES
from tests.truth.tables import TABLES
from tests.truth.trial import Trial


def main() -> int:
    """Print each untruth that is found, and how many claims were tried; 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth", description=__doc__)
    parser.add_argument("--seeds", default="0..99", help="the first and the last seed")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("..")
    found: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    for seed in range(int(first), int(last or first) + 1):
        trial = Trial.of_seed(seed)
        codes.update(job.waiting_reason.code for job in trial.jobs.values() if job.waiting_reason is not None)
        for claim in (*CLAIMS, *SHARES, *CAPS, *DIFFERING, *TABLES):
            for text in claim(trial):
                found[claim.__name__] += 1
                sys.stdout.write(f"seed {seed}: {claim.__name__}: {text}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{sum(codes.values())} jobs wait: {dict(codes.most_common())}\nuntruths: {dict(found)}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
