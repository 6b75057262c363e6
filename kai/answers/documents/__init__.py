"""Documents for machines: the envelope, and the values of jobs, queues, nodes and explanations."""
