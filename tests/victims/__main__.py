"""Compare many clusters with the best answer, and print the table."""

import argparse
import json
import sys
import time

from kai.facts.kernels import run_compiled
from tests.victims.comparing import Table, compare


def main() -> int:
    """Return 1 if some group does not start, or a set is worse than it may be."""
    parser = argparse.ArgumentParser(prog="python -m tests.victims", description=__doc__)
    parser.add_argument("--seeds", default="1..5000", help="the first and the last seed")
    parser.add_argument("--config", type=json.loads, help="the configuration of the scenarios, as JSON")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("..")
    run_compiled()
    used, table = time.process_time(), Table()
    for seed in range(int(first), int(last or first) + 1):
        table.add(compare(seed, arguments.config))
    sys.stdout.write("\n".join([*table.lines(), f"{time.process_time() - used:.0f} s of processor", ""]))
    few = table.as_good >= 0.98 * (table.solvable - len(table.missed))
    return int(bool(table.missed or table.far or table.unruly) or not few)


if __name__ == "__main__":
    sys.exit(main())
