"""kai beside Kubernetes' own code: drawn inputs, what Kubernetes answers to them, and what kai answers."""
