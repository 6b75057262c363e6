"""kai decides which AI workloads run where in a Kubernetes cluster.

A tour in reading order: ``kai.api`` is what travels on the wire, ``kai.intake`` turns it into a snapshot of
``kai.facts``, ``kai.deciding.engine.cycle`` is the main loop, ``kai.actions`` and ``kai.plugins`` are the policy.
``kai.roles`` are the services, ``kai.answers`` and ``kai.lab`` what commands and the dashboard stand on, ``kai.cli`` is
the command. Who may import whom is in ``pyproject.toml``.
"""
