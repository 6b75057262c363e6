"""Documents for machines: the envelope, and values of jobs, queues, nodes and explanations."""
