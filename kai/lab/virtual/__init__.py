"""Virtual time: the scheduler on an embedded cluster whose clock jumps from one event to the next.

Read `running.simulation` first. A subpackage imports only the ones above it in this list:

    scenes/   the input of one run: files, traces and snapshots become jobs, nodes and node events
    running/  the event loop, the embedded cluster, the owners of pods, and the records
    results/  figures, documents and comparisons of results

`experiments` describes runs so that another process can carry them out, and reconstructs one instant of a run; `remote`
sends them to other machines.
"""
