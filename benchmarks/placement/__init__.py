"""How much of a cluster's GPUs a published mix of pods gets, with and without the plugin ``fragmentation``."""
