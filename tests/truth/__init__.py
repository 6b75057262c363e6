"""Whether what kai tells of jobs that wait is true: ``python -m tests.truth --seeds 0..99``.

A *trial* is one random cluster (``tests.generate``), decided once and explained. A *claim* is something that kai says
about a job that waits; each claim is tried by another way than the one by which kai came to say it: the scenario is
changed as a reader would change it, and decided from its objects again, or its objects are counted.

Reading order: ``trial`` draws and changes, ``claims`` says what is claimed and tries it, ``shares`` does so for fair
shares, ``caps`` for caps on evictions, ``differing`` for ``kai diff``, ``tables`` adds up what tables show.

``manifests`` draws objects with the mistakes of people, and ``admitting`` tries what ``kai lint`` says of them against
the admission webhooks.

``voices`` asks all places where a reason is told about one job, ``scenes`` has a cluster for each reason.
"""
