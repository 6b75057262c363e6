"""kai decides which AI workloads run where in a Kubernetes cluster.

A tour in reading order: ``kai.api`` is what travels on the wire, ``kai.intake`` turns it into a snapshot,
``kai.model`` and ``kai.state`` hold facts and numbers, ``kai.engine.cycle`` is the main loop, ``kai.actions`` and
``kai.plugins`` are the policy, ``kai.kernels`` the arithmetic, ``kai.cli`` the command. Who may import whom is in
``pyproject.toml``.
"""
