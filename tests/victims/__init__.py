"""Whether searches for victims find the best set: ``python -m tests.victims --seeds 1..5000``.

A random cluster of up to 12 nodes and 9 groups that may lose pods is decided by kai, and by an oracle that tries every
set of evictions that the rules allow, the cheapest first.

Reading order: ``drawing`` draws a cluster and writes it as objects, ``oracle`` searches for the best set,
``comparing`` sets both beside each other and adds up many.
"""
