"""Results of runs: figures with their definitions, documents and tables, and comparisons of results.

Begin with `result` for the values, and with `metrics` for how they follow from a run.
"""
