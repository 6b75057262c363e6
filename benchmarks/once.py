"""Measure one workload in this process and print the sample as JSON: ``python -m benchmarks.once w1``.

This is the fresh process that ``campaign`` starts for every sample.
"""

import json
import sys
from functools import partial

import cattrs

from benchmarks import engine
from benchmarks.growth import find
from benchmarks.measure import ROUNDS, measure

if __name__ == "__main__":
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    workload = find(sys.argv[1])
    profile = engine.profile_of(workload)
    begin, warm = partial(engine.Live, profile=profile), partial(engine.warm, profile)
    print(json.dumps(cattrs.unstructure(measure(workload, begin, warm, rounds))))
