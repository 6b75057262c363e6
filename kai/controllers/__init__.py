"""Controllers: pure functions from what they see to what they would write.

`podgroup` and `queue` keep statuses, `queue_tree` says what is wrong with the tree of queues, `node_scale` asks for
nodes on behalf of pods that share GPUs. The shells that watch and write stand beside them:
`podgroup_service`, `queue_service` and `node_scale_service`.
"""
