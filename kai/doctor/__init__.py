"""``kai doctor``: whether an installation is healthy, check by check, each with one line that helps.

`reading` looks at a cluster once and writes nothing; `seen` is what was found, as values. The checks are pure functions
over that: `installation` about programs, kinds, rights and webhooks, `workloads` about queues, jobs and nodes. `checks`
is the table of them all, `findings` what a check may say.
"""
