"""Measure kai on workloads that other schedulers have been measured on.

``workload`` says what a workload is made of, ``catalogue`` lists them as data, ``manifests`` turns one into Kubernetes
objects, ``measure`` times one cycle in a fresh process, ``campaign`` repeats that and sums it up. Only ``engine``
knows kai. The command is ``python -m benchmarks``.
"""
