"""What the objects of a case say that its snapshot leaves out."""

from kai.api.objects import ClusterObjects
from kai.explain.declared import Declared
from kai.intake import IntakeSettings


def declared_in(objects: ClusterObjects, settings: IntakeSettings) -> Declared:
    """Return parents of queues, queues of other schedulers, and the names of gates. Cost: a look at each object."""
    mine = {queue.metadata.name: queue for queue in objects.queues if settings.owns(queue.metadata.labels)}
    return Declared(
        parents={name: queue.spec.parent_queue or "" for name, queue in mine.items()},
        elsewhere=frozenset(queue.metadata.name for queue in objects.queues if queue.metadata.name not in mine),
        gates={
            f"{pod.metadata.namespace}/{pod.metadata.name}": tuple(gate.name for gate in pod.spec.scheduling_gates)
            for pod in objects.pods
            if pod.spec.scheduling_gates
        },
    )


__all__ = ["declared_in"]
