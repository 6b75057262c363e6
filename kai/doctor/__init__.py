"""``kai doctor``: whether an installation is healthy, check by check, each with one line that helps.

`cluster_reading` looks at a cluster once and writes nothing; `seen` has its observations and the findings, as values.
The checks are pure functions over observations: `installation` about programs, kinds and rights, `doors` about webhooks
and policies, `workloads` about queues, jobs and nodes, `surroundings` about quotas and GPUs of nodes. `checks` is the
table of them all.
"""
