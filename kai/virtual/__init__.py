"""Virtual time: the scheduler on an embedded cluster whose clock jumps from one event to the next.

Read `running.simulation` first. The rooms, each of which imports only those above it in this list:

    scenes/   what one run needs: files, traces and snapshots become jobs, nodes and what happens to both
    running/  the loop, the embedded cluster, owners of pods, and what is recorded of them
    results/  figures, documents, comparisons of what came out

`moments` looks at one moment of a run again. `experiments` describes runs so that another process carries them out;
`remote` sends them to other machines.
"""
