"""Virtual time: the scheduler on an embedded cluster whose clock jumps from one event to the next.

Start reading at ``simulation``. What is simulated is a ``Scene`` (``scene``), read by ``reading`` from manifests and a
cluster file or by ``replaying`` from a trace; what comes out is a ``SimulationResult`` (``result``).
"""
