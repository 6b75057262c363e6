"""Profile one workload in this process and print what was found as JSON: ``python -m benchmarks.profiled w1``.

This is the fresh process that ``python -m benchmarks profile`` starts.
"""

import json
import sys

import cattrs

from benchmarks import engine
from benchmarks.growth import find
from benchmarks.sampling import profile

if __name__ == "__main__":
    workload = find(sys.argv[1])
    plugins = engine.profile_of(workload)
    engine.warm(plugins)
    print(json.dumps(cattrs.unstructure(profile(workload, engine.Live(profile=plugins)))))
