"""Controllers: pure functions from observed objects to the writes that they call for.

`holdings` and `queue_service` keep statuses, `queue_tree` finds faults in the tree of queues, and `node_scale` requests
nodes on behalf of pods that share GPUs. The shells that watch and write are `podgroup_service`, `queue_service` and
`node_scale_service`.
"""
