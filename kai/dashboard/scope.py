"""What a reader may see, and an outcome with everything else made nameless.

Answers are made of an outcome in many ways, and each way could give a name away. So names go before: groups and pods of
namespaces that the reader may not list, queues that are not the reader's to know, nodes where they may not be listed.
What is made of the outcome afterwards has no foreign name to tell.
"""

from __future__ import annotations

from typing import Final

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.model.pod import STAND_IN, Pod
from kai.model.podgroup import PodGroup
from kai.model.queue import Queue, path_to
from kai.simulation.deciding.run import Outcome
from kai.state.snapshot import Snapshot

FOREIGN_NAMESPACE: Final = "another namespace"
FOREIGN_JOB: Final = "another job"
FOREIGN_QUEUE: Final = "another queue"
FOREIGN_NODE: Final = "a node"
_FOREIGN_POD: Final = Pod(name="another pod", namespace=FOREIGN_NAMESPACE, uid="", created=0.0)
_FOREIGN_PLACE: Final = attrs.evolve(_FOREIGN_POD, name=_FOREIGN_POD.name + STAND_IN)


@attrs.frozen(kw_only=True)
class Scope:
    """What a reader may see; None is everything."""

    namespaces: frozenset[str] | None = None
    """Whose pod groups may be listed."""
    queues: frozenset[str] | None = None
    """The queues that may be read."""
    nodes: bool = True
    """Whether nodes may be listed."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is hidden."""
        return self.namespaces is None and self.queues is None and self.nodes

    def sees(self, namespace: str) -> bool:
        """Return whether jobs of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def reads(self, queue: str) -> bool:
        """Return whether a queue may be read."""
        return self.queues is None or queue in self.queues


EVERYTHING: Final = Scope()


def masked(outcome: Outcome, scope: Scope) -> Outcome:
    """Return an outcome without the names that a reader may not know; the rest is as it was.

    Rows keep their places, so columns of the report fit. Names are not unique any more: nothing can be decided on it.
    """
    if scope.is_whole:
        return outcome
    cycle = outcome.last
    known = known_queues(cycle.snapshot, scope)
    snapshot = _masked_snapshot(cycle.snapshot, scope, known)
    case = attrs.evolve(outcome.case, objects=_masked_objects(outcome.case.objects, scope, known))
    return attrs.evolve(outcome, case=case, cycles=(attrs.evolve(cycle, snapshot=snapshot),))


def known_queues(snapshot: Snapshot, scope: Scope) -> frozenset[str]:
    """Return the queues whose names are no secret: those that may be read, those of the reader's jobs, and above."""
    if scope.queues is None:
        return frozenset(queue.name for queue in snapshot.queues)
    rows = {group.queue_row for group in snapshot.groups if scope.sees(group.namespace)}
    return scope.queues | {snapshot.queues[at].name for row in rows for at in path_to(snapshot.queues, row)}


def _masked_snapshot(snapshot: Snapshot, scope: Scope, known: frozenset[str]) -> Snapshot:
    return attrs.evolve(
        snapshot,
        groups=tuple(_group(each, scope, known) for each in snapshot.groups),
        pods=tuple(each if scope.sees(each.namespace) else _foreign(each) for each in snapshot.pods),
        queues=tuple(_queue(each, known) for each in snapshot.queues),
        nodes=snapshot.nodes
        if scope.nodes
        else tuple(attrs.evolve(each, name=FOREIGN_NODE) for each in snapshot.nodes),
        foreign={},
        catalog=attrs.evolve(snapshot.catalog, config_maps=frozenset(), config_maps_known=False),
    )


def _foreign(pod: Pod) -> Pod:
    return _FOREIGN_PLACE if pod.is_stand_in else _FOREIGN_POD


def _group(group: PodGroup, scope: Scope, known: frozenset[str]) -> PodGroup:
    if scope.sees(group.namespace):
        return group
    return attrs.evolve(
        group,
        name=FOREIGN_JOB,
        namespace=FOREIGN_NAMESPACE,
        uid="",
        queue=group.queue if group.queue in known else FOREIGN_QUEUE,
        labels={},
        annotations={},
        tree_error="",
        held="",
    )


def _queue(queue: Queue, known: frozenset[str]) -> Queue:
    return queue if queue.name in known else attrs.evolve(queue, name=FOREIGN_QUEUE, display_name="")


def _masked_objects(objects: ClusterObjects, scope: Scope, known: frozenset[str]) -> ClusterObjects:
    """Return objects without those that the reader may not know; of nodes what is no name may be looked up."""
    return attrs.evolve(
        objects,
        pods=tuple(each for each in objects.pods if scope.sees(each.metadata.namespace)),
        pod_groups=tuple(each for each in objects.pod_groups if scope.sees(each.metadata.namespace)),
        queues=tuple(each for each in objects.queues if each.metadata.name in known),
        nodes=objects.nodes if scope.nodes else (),
        bind_requests=(),
        config_maps=(),
        persistent_volumes=objects.persistent_volumes
        if scope.nodes
        else tuple(
            attrs.evolve(each, spec=attrs.evolve(each.spec, node_affinity=None)) for each in objects.persistent_volumes
        ),
    )
