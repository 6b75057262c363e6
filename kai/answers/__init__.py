"""Answers: what the scheduler would do with a cluster, why, and as which document; without a network of its own.

A case (objects and a configuration) enters; outcomes, explanations and documents leave, for commands, the dashboard and
the service alike. Time stands still. Begin with `offline.run`. A folder imports only the folders above it:

    cases/      the input: objects of files or of a running cluster, with their origin
    offline/    snapshot, cycle, and the reaction of the cluster
    outcomes/   the results: queues, jobs, nodes
    why/        why jobs wait, the evidence, and what would help
    documents/  all of it as JSON
"""
