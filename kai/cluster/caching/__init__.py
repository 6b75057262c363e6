"""The objects of a cluster in memory, kept current by watches. Begin with `store`.

`watch` is the machine that lists and watches one kind, `watching` its shell; `assume_cache` has the objects of one
kind, with what was assumed over them, and `shown` what readers see of it.
"""
