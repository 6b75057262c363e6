"""Classes of the six kinds that kai defines: queues, pod groups, bind requests, topologies, shards and Config."""
