"""Workloads of other schedulers, adopted in memory: kai decides on them, and no manifest is edited.

``adopted`` rewrites manifests before anything else reads them: pods of the given schedulers get kai's as scheduler,
each workload without a queue gets one, and missing queues are created (``proposals``). The rest is decided as for any
other input.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.kubernetes.pod import ENDED
from kai.basics.parsing import mapping_of, mappings_of, part_of, place_of
from kai.basics.wording import counted
from kai.manifests.findings import Document, Text
from kai.manifests.proposals import (
    KUEUE,
    LOCAL_QUEUE,
    NAMESPACE,
    QUEUE_KINDS,
    VOLCANO,
    Around,
    Proposal,
    Proposed,
    propose,
)
from kai.manifests.unused import templates

Manifest = Mapping[str, Any]

QUEUE_SOURCES: Final = (NAMESPACE, KUEUE, VOLCANO)
"""The values of ``--queue-from``."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The scheduler of pods that name none: the API server sets it as the default."""
SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public", "kube-node-lease", names.KAI_NAMESPACE})
# The kubelet makes a mirror pod of each static pod, and names its Node as the owner.
_ON_EACH_NODE: Final = frozenset({"DaemonSet", "Node"})
_GATES: Final = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
"""Kueue's scheduling gates, which keep a pod from every scheduler until Kueue admits it."""
_OTHER_GROUPS: Final = {
    "scheduling.volcano.sh": "scheduling.k8s.io/group-name",
    "scheduling.x-k8s.io": "scheduling.x-k8s.io/pod-group",
}
"""API groups of other PodGroup kinds with a minimum of pods, and the keys by which pods name such a group."""
_KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"


@attrs.frozen(kw_only=True)
class Adoption:
    """The schedulers whose pods are adopted, and the source of queues.

    Source: an API server writes ``default-scheduler`` into pods that name no scheduler.
    """

    ours: str = names.SCHEDULER_NAME
    """The name under which kai schedules."""
    schedulers: frozenset[str] = frozenset()
    """Other schedulers, and API groups of operators that write kai's name into the pods that they create."""
    queue_from: str = ""
    """One of ``QUEUE_SOURCES``; "" if workloads stay in the queues that they name."""

    @property
    def operators(self) -> frozenset[str]:
        """The API groups among ``schedulers``: they have a dot, unlike names of schedulers."""
        return frozenset(each for each in self.schedulers if "." in each)

    @property
    def changes(self) -> bool:
        """Whether manifests need rewriting."""
        return bool(self.schedulers or self.queue_from) or self.ours == DEFAULT_SCHEDULER

    def takes(self, scheduler: str) -> bool:
        """Return whether pods of ``scheduler`` are decided on; "" stands for pods that name none."""
        return (scheduler or DEFAULT_SCHEDULER) in {self.ours, *self.schedulers}


HELD_KINDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    KUEUE: (
        ("batch/v1", "Job"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("kubeflow.org/v1", "PyTorchJob"),
        ("ray.io/v1", "RayJob"),
    )
}
"""Workloads that have no pods while another system holds them."""

NONE: Final = Adoption()
"""No adoption."""


@attrs.frozen(kw_only=True)
class Adopted:
    """Manifests as kai decides on them: those of the input in order, then new ones."""

    manifests: tuple[Manifest, ...]
    made: tuple[Manifest, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    """The new queues, with the origin of each amount."""
    notes: tuple[str, ...] = ()


def adopted(manifests: Sequence[Manifest], adoption: Adoption, around: Around | None = None) -> Adopted:
    """Return manifests with the workloads of other schedulers as workloads of kai.

    System pods, and pods that run on each node, keep their scheduler: they are not jobs.
    """
    if not adoption.changes:
        return Adopted(manifests=tuple(manifests))
    owners = {
        str(each.get("uid")) for manifest in manifests for each in mappings_of(manifest, "metadata", "ownerReferences")
    }
    work = _Adopting(adoption, propose(manifests, adoption.queue_from, around), owners)
    rewritten = tuple(map(work.rewrite, manifests))
    queues = work.proposed.made(work.wanted)
    return Adopted(
        manifests=rewritten,
        made=(*work.groups.values(), *(each.manifest() for each in queues)),
        proposals=queues,
        notes=(*work.notes(), *work.proposed.notes),
    )


def adopted_documents(
    documents: Sequence[Document], adoption: Adoption, around: Around | None = None, beside: Sequence[Manifest] = ()
) -> tuple[tuple[Document, ...], tuple[Proposal, ...], tuple[str, ...]]:
    """Return documents with their manifests ``adopted``, the new queues, and notes.

    ``beside`` are objects of the cluster that the documents are applied to, such as Kueue's queues.
    """
    if not adoption.changes:
        return tuple(documents), (), ()
    found = adopted([*(document.manifest for document in documents), *beside], adoption, around)
    kept = [
        document if manifest is document.manifest else attrs.evolve(document, manifest=manifest)
        for document, manifest in zip(documents, found.manifests, strict=False)
    ]
    text = Text("--queue-from", "")
    made = [Document(manifest, text, number) for number, manifest in enumerate(found.made)]
    return (*kept, *made), found.proposals, found.notes


@attrs.define
class _Adopting:
    """The state of one adoption."""

    adoption: Adoption
    proposed: Proposed
    owners: AbstractSet[str]
    """UIDs of owners of other manifests: their pods are counted instead."""
    taken: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """Adopted pods and workloads, by their scheduler."""
    left: int = 0
    """The number of system workloads that keep their scheduler."""
    wanted: dict[str, None] = attrs.field(factory=dict)
    """Queues of adopted workloads, in order."""
    groups: dict[tuple[str, str], Manifest] = attrs.field(factory=dict)
    """Groups that pods name by a label of Kueue."""

    def rewrite(self, manifest: Manifest) -> Manifest:
        """Return a manifest as kai reads it; the same object if nothing changes."""
        if not isinstance(manifest.get("kind"), str) or not isinstance(manifest.get("metadata"), Mapping):
            return manifest
        if self.adoption.schedulers and _is_group_of_others(manifest):
            return self._group(manifest)
        found = templates(manifest)
        if not found or part_of(manifest, "status", "phase") in ENDED:
            return manifest
        whole = part_of(manifest, "spec", "schedulerName")  # of a Volcano Job: it applies to all its templates
        asked = [str(part_of(each, "spec", "schedulerName") or whole or "") for _, each in found]
        ours = [name for name in asked if self.adoption.takes(name)]
        if not ours:
            return manifest
        others = [name for name in ours if (name or DEFAULT_SCHEDULER) != self.adoption.ours]
        if others and _is_of_system(manifest):
            self.left += 1
            return manifest
        changed = manifest
        for (path, _), name in zip(found, asked, strict=True):
            if self.adoption.takes(name):
                changed = _at(changed, path, self._for_us)
        if isinstance(whole, str) and self.adoption.takes(whole):
            changed = _at(changed, ("spec",), lambda spec: {**spec, "schedulerName": self.adoption.ours})
        if part_of(manifest, "metadata", "uid") not in self.owners:
            what = "pod" if manifest["kind"] == "Pod" else "workload"
            self.taken.update({(name or DEFAULT_SCHEDULER, what) for name in others})
        return self._in_queue(changed)

    def notes(self) -> Iterator[str]:
        """Yield notes on the workloads that were adopted, and on the others."""
        known = sorted({scheduler for scheduler, _ in self.taken})
        for scheduler in known:
            parts = [(self.taken[scheduler, what], what) for what in ("pod", "workload")]
            counts = " and ".join(counted(number, what) for number, what in parts if number)
            yield f"{counts} for {scheduler}: decided on as if for {self.adoption.ours}"
        if self.left:
            yield (
                f"{counted(self.left, 'workload')} of the system or on each node: "
                "left to the scheduler that they name (namespaces kube-*, DaemonSets)"
            )
        missing = sorted(self.adoption.schedulers - self.adoption.operators - set(known))
        # Pods of the system were not counted: a scheduler that seems to have none may be theirs.
        for scheduler in missing if not self.left else ():
            yield f"--scheduler-name {scheduler}: no pod is for it"

    def _for_us(self, template: Manifest) -> Manifest:
        spec = dict(mapping_of(template, "spec"))
        spec["schedulerName"] = self.adoption.ours
        # Only gates that Kueue itself removes on admission. Any other gate still holds the pod back.
        if self.adoption.queue_from == KUEUE and spec.get("schedulingGates"):
            gates = [each for each in mappings_of(spec, "schedulingGates") if each.get("name") not in _GATES]
            spec["schedulingGates"] = gates
        return {**template, "spec": spec}

    def _in_queue(self, manifest: Manifest) -> Manifest:
        """Return a workload with its new queue, no longer suspended if Kueue holds it."""
        queue = self.proposed.queue_of(manifest)
        if not queue:
            return self._in_named_group(manifest, "")
        metadata = dict(mapping_of(manifest, "metadata"))
        labels = mapping_of(metadata, "labels")
        changed = dict(manifest)
        if names.QUEUE not in labels:
            self.wanted[queue] = None
            changed["metadata"] = {**metadata, "labels": {**labels, names.QUEUE: queue}}
        # Kueue keeps a workload suspended until it admits it, and here kai admits in its place.
        if self.adoption.queue_from == KUEUE and part_of(manifest, "spec", "suspend") is True:
            changed["spec"] = {**mapping_of(manifest, "spec"), "suspend": False}
        return self._in_named_group(changed, queue)

    def _in_named_group(self, manifest: Manifest, queue: str) -> Manifest:
        """Return a pod in the group that it names by another scheduler's key."""
        if manifest["kind"] != "Pod" or part_of(manifest, "metadata", "annotations", names.POD_GROUP):
            return manifest
        metadata = dict(mapping_of(manifest, "metadata"))
        annotations, labels = mapping_of(metadata, "annotations"), mapping_of(metadata, "labels")
        named = next(
            (str(said[key]) for key in _OTHER_GROUPS.values() for said in (annotations, labels) if said.get(key)), ""
        )
        if not named and self.adoption.queue_from == KUEUE and labels.get(_KUEUE_GROUP):
            named = str(labels[_KUEUE_GROUP])
            key = (str(metadata.get("namespace") or "default"), named)
            self.groups.setdefault(key, _pod_group(*key, queue, annotations.get(_KUEUE_TOTAL)))
        if not named:
            return manifest
        metadata["annotations"] = {**annotations, names.POD_GROUP: named}
        return {**manifest, "metadata": metadata}

    def _group(self, manifest: Manifest) -> Manifest:
        """Return another scheduler's pod group as a pod group of kai."""
        metadata, spec = mapping_of(manifest, "metadata"), mapping_of(manifest, "spec")
        queue = self.proposed.queue_of(manifest)
        if queue:
            self.wanted[queue] = None
        key = place_of(manifest)
        made = dict(_pod_group(*key, queue, spec.get("minMember")))
        # Age and labels decide about order and queue; annotations of another scheduler mean nothing to kai.
        kept = {name: metadata[name] for name in ("uid", "creationTimestamp", "labels") if name in metadata}
        made["metadata"] = {**made["metadata"], **kept}
        if isinstance(spec.get("priorityClassName"), str):
            made["spec"] = {**made["spec"], "priorityClassName": spec["priorityClassName"]}
        return made


def says_queues(kind: str, adoption: Adoption) -> bool:
    """Return whether queues are made from objects of a kind."""
    return any(name == kind for _, name in QUEUE_KINDS.get(adoption.queue_from, ()))


def is_held(manifest: Manifest) -> bool:
    """Return whether Kueue holds a workload suspended; then it has no pods."""
    labels = mapping_of(manifest, "metadata", "labels")
    return LOCAL_QUEUE in labels and part_of(manifest, "spec", "suspend") is True


def _pod_group(namespace: str, name: str, queue: str, least: object) -> Manifest:
    text = str(least)
    spec: dict[str, Any] = {"queue": queue or names.DEFAULT_QUEUE, "minMember": int(text) if text.isdecimal() else 1}
    head = {"apiVersion": names.POD_GROUP_VERSION, "kind": "PodGroup"}
    return {**head, "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def _is_group_of_others(manifest: Manifest) -> bool:
    group = str(manifest.get("apiVersion")).rpartition("/")[0]
    return manifest.get("kind") == "PodGroup" and group in _OTHER_GROUPS


def _is_of_system(manifest: Manifest) -> bool:
    """Return whether an object is part of the cluster itself: in a system namespace, or a pod of each node."""
    metadata = mapping_of(manifest, "metadata")
    owners = {str(each.get("kind")) for each in mappings_of(metadata, "ownerReferences")}
    return metadata.get("namespace") in SYSTEM_NAMESPACES or bool(_ON_EACH_NODE & {str(manifest["kind"]), *owners})


def _at(value: Any, path: Sequence[str | int], change: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON as it is written
    """Return a copy of a JSON value with the part at ``path`` changed; all other parts are shared."""
    if not path:
        return change(value)
    step, rest = path[0], path[1:]
    copy: Any = list(value) if isinstance(value, list) else dict(value)
    copy[step] = _at(value[step], rest, change)
    return copy
