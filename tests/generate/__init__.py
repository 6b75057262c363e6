"""Make valid random clusters as scenarios, so that any two schedulers can be compared on them.

``python -m tests.generate --seed 7 --count 100 --out DIR`` writes scenario files of the format of the conformance
cases, without expectations. A scenario is a function of its seed and of the features that it may have.

Reading order: ``features`` says what there is to vary, ``draft`` holds a cluster while it is drawn, ``nodes``,
``queues`` and ``groups`` draw it, ``booking`` keeps account of what running pods take, ``emit`` writes the objects and
``scenario`` puts all together. ``laws`` and ``census`` look at finished scenarios only: is one valid, what is in it.
"""
