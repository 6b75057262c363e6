"""Classes of the six kinds that kai defines: queues, groups of pods, orders to bind, topologies, configuration."""
