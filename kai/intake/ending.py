"""Pods of namespaces that are being deleted: they leave with it, though most of them were not told yet.

The namespace controller deletes the pods of such a namespace one after the other. Until it has come to a pod, the API
server refuses to bind or evict that pod all the same. So a cycle takes the pod to be leaving for as long as its
namespace is: what it holds counts for its queue until it is gone, other pods may be promised its place, and nothing is
decided about it.
"""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.core import Namespace
from kai.api.kubernetes.pod import Pod


@attrs.define(eq=False)
class EndingNamespaces:
    """Shows pods of namespaces that are being deleted as leaving.

    Holds: the same objects become the same objects, so that nothing is read anew because a namespace ends.
    Cost: of each namespace when one changes; of each pod while a namespace ends and any pod changes.
    """

    _namespaces: Sequence[Namespace] = ()
    _since: Mapping[str, float] = attrs.field(factory=dict)
    """When the deletion of a namespace was asked for, by its name."""
    _pods: Sequence[Pod] = ()
    _shown: Sequence[Pod] = ()
    """What is shown for ``_pods``."""
    _leaving: dict[Key, tuple[Pod, Pod]] = attrs.field(factory=dict)
    """Pods of ending namespaces and what is shown for them."""

    def shown(self, objects: ClusterObjects) -> ClusterObjects:
        """Return the objects, in which pods of ending namespaces are being deleted."""
        if objects.namespaces is not self._namespaces:
            self._namespaces, since = objects.namespaces, _ending(objects.namespaces)
            if since != self._since:
                self._since, self._pods, self._shown = since, (), ()
        if not self._since:
            self._leaving.clear()
            return objects
        if objects.pods is not self._pods:
            self._pods, self._shown = objects.pods, self._with_leaving(objects.pods)
        return objects if self._shown is objects.pods else attrs.evolve(objects, pods=self._shown)

    def _with_leaving(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        before, self._leaving = self._leaving, {}
        since = self._since
        for pod in pods:
            metadata = pod.metadata
            if metadata.namespace in since and metadata.deletion_timestamp is None:
                source, shown = before.get(key_of(pod), (None, pod))
                if source is not pod:
                    shown = attrs.evolve(
                        pod, metadata=attrs.evolve(metadata, deletion_timestamp=since[metadata.namespace])
                    )
                self._leaving[key_of(pod)] = pod, shown
        if not self._leaving:
            return pods
        leaving = {id(pod): shown for pod, shown in self._leaving.values()}
        return tuple([leaving.get(id(pod), pod) for pod in pods])


def _ending(namespaces: Iterable[Namespace]) -> dict[str, float]:
    times = {each.metadata.name: each.metadata.deletion_timestamp for each in namespaces}
    return {name: time for name, time in times.items() if time is not None}
