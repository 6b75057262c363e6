"""The roles: services that run in a cluster, each alone or several in one process.

Objects that watches keep in memory enter; writes to the API server leave. A role is a set of pure state machines and
plans, with a thin shell that watches and writes. No role imports another. Begin with `scheduler.service`.

    scheduler/    decides, writes the decisions, and tells users and operators why
    binder/       carries out decisions: volumes, claims, shared GPUs, then the binding
    podgrouper/   gives pods of every kind of workload their PodGroup
    admission/    webhooks: completes pods and groups, refuses wrong ones
    controllers/  keeps the statuses of queues and groups
"""
