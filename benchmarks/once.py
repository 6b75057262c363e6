"""Measure one cycle and print it as JSON: ``python -m benchmarks.once w1``.

This is the fresh process that ``campaign`` starts for every sample.
"""

import json
import sys

import cattrs

from benchmarks import engine
from benchmarks.catalogue import find_workload
from benchmarks.measure import measure

if __name__ == "__main__":
    print(json.dumps(cattrs.unstructure(measure(find_workload(sys.argv[1]), engine))))
