"""A case: the complete input of one simulation, as values, and doubts about that input. Begin with `case`.

A case does not depend on the format of its files: `scenarios` and `sources` read those.
"""
