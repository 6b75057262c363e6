"""Results of runs: figures with their definitions, documents and tables, and what two results differ in.

Begin with `result` for what there is, and with `metrics` for how it follows from a run.
"""
