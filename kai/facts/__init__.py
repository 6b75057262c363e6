"""Facts and numbers: what the cluster is at an instant, and the arithmetic on it.

Frozen facts of pods, groups, nodes and queues enter; columns of numbers with exact undo, and functions over them,
leave. Begin with `model.pod` and `state.snapshot`.

    model/     facts: frozen values
    state/     columns of numbers: which pod is where, what is free
    kernels/   functions over columns, each with a plain twin in the tests
    compiled/  how kernels become machine code; its README says which private names of numba it uses
"""
