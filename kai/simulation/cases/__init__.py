"""A case: everything that one simulation is given, as values, and what is doubtful about it. Begin with `case`.

What a case is written in makes no difference here: `scenarios` and `sources` read it.
"""
