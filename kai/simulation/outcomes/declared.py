"""What the objects of a case say that its snapshot leaves out."""

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.explain.declared import Declared, missing_queue
from kai.explain.phrases import Words
from kai.intake import IntakeSettings, declared_queues
from kai.simulation.deciding.run import Outcome


def declared_in(objects: ClusterObjects, settings: IntakeSettings) -> Declared:
    """Return parents of queues, queues of other schedulers, and the names of gates. Cost: a look at each object."""
    return attrs.evolve(
        declared_queues(objects.queues, settings),
        gates={
            f"{pod.metadata.namespace}/{pod.metadata.name}": tuple(gate.name for gate in pod.spec.scheduling_gates)
            for pod in objects.pods
            if pod.spec.scheduling_gates
        },
    )


def left_out(outcome: Outcome) -> tuple[tuple[str, Words], ...]:
    """Return the queues that are written down and not in the snapshot, by name, with the reason."""
    known = outcome.last.snapshot.queue_rows
    absent = sorted(each.metadata.name for each in outcome.case.objects.queues if each.metadata.name not in known)
    declared = declared_in(outcome.case.objects, outcome.case.settings) if absent else Declared()
    return tuple((name, missing_queue(name, declared)) for name in absent)
