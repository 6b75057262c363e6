"""Adopting the workloads of other schedulers in a cluster or a snapshot.

Pods of another scheduler have no pod group. They are converted to manifests, adopted, and grouped by the rules of the
service. Their owners can be read from a running cluster; a snapshot has only the owner references.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import attrs

from kai.answers.cases.case import Case
from kai.answers.cases.live_cluster import lister_of
from kai.api import names
from kai.api.codec.structuring import structure_all, unstructure
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.meta import PriorityClass
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.basics.errors import UnreachableError
from kai.basics.parsing import mappings_of, part_of, text_of
from kai.cluster.clock import SystemClock
from kai.cluster.port import Clock
from kai.cluster.transport.access import Access
from kai.manifests.adoption import HELD_KINDS, Adoption, adopted, is_held
from kai.manifests.expansion import Surroundings, expand
from kai.manifests.proposals import QUEUE_KINDS, Around, gpus_of_nodes, sources_of_queues

Manifest = Mapping[str, Any]
T = TypeVar("T", bound=ApiObject)


def with_adopted(case: Case, adoption: Adoption, beside: Sequence[Manifest] = ()) -> Case:
    """Return a case with the pods of other schedulers among kai's.

    ``beside`` are further objects of the cluster: owners of pods, quotas of namespaces, queues of other schedulers.

    Raises: InputError for an object that cannot be read.
    """
    if not adoption.changes and adoption.ours == case.settings.scheduler_name:
        return case
    chosen = taken(case, adoption)
    written = [unstructure(pod) for pod in chosen]
    known = {str(mapping.get("metadata", {}).get("uid")) for mapping in beside}
    found = adopted([*written, *beside, *_owners(written, known)], adoption, around_of(case))
    objects = case.objects
    around = Surroundings(
        scheduler_name=adoption.ours,
        operators=adoption.operators,
        # Names that are taken: pods that are made from workloads must not replace others of the cluster.
        pods=frozenset(map(key_of, objects.pods)) - set(map(key_of, chosen)),
        objects=[unstructure(each) for each in (*objects.priority_classes, *objects.pod_groups)],
        ungrouped={text_of(each, "metadata", "uid") for each in found.manifests},
    )
    expansion = expand([*found.manifests, *found.made], around)
    more = structure_all(_all_grouped(expansion.manifests, around)).objects
    queues = tuple(each for each in more if isinstance(each, Queue))
    return attrs.evolve(
        case,
        objects=attrs.evolve(
            objects,
            pods=_replaced(objects.pods, [each for each in more if isinstance(each, Pod)]),
            pod_groups=_replaced(objects.pod_groups, [each for each in more if isinstance(each, PodGroup)]),
            priority_classes=_replaced(
                objects.priority_classes, [each for each in more if isinstance(each, PriorityClass)]
            ),
            queues=(*objects.queues, *queues),
        ),
        unused=(*case.unused, *(each for each in expansion.unused if each.kind == Pod.__name__)),
        adopted=(*case.adopted, *found.notes),
        proposals=found.proposals,
        queue_sources=sources_of_queues(beside),
    )


def _all_grouped(manifests: Sequence[Manifest], around: Surroundings) -> list[Manifest]:
    """Return objects with groups also for the pods that the first pass left without one.

    The groupers of some kinds read more of an owner than a reference has. Without that, all pods of one owner become
    one job with a minimum of one pod.
    """
    left = [each for each in manifests if _is_ungrouped(each, around.scheduler_name)]
    if not left:
        return list(manifests)
    plain = [{**each, "metadata": {**each["metadata"], "ownerReferences": _plain(each)}} for each in left]
    stubs = {each["uid"]: _stub(pod, each) for pod in plain for each in pod["metadata"]["ownerReferences"]}
    again = expand([*plain, *stubs.values()], around).manifests
    grouped = {_place(each): each["metadata"] for each in again if each.get("kind") == Pod.__name__}
    # Only groups and links are taken from the second pass. Its owners are made up and must not become objects.
    found: list[Manifest] = [each for each in again if each.get("kind") == PodGroup.__name__]
    for each in manifests:
        made = grouped.get(_place(each)) if each.get("kind") == Pod.__name__ else None
        if made is None:
            found.append(each)
        else:
            kept = {name: made[name] for name in ("labels", "annotations") if name in made}
            found.append({**each, "metadata": {**each["metadata"], **kept}})
    return found


def _is_ungrouped(manifest: Manifest, ours: str) -> bool:
    is_ours = manifest.get("kind") == Pod.__name__ and text_of(manifest, "spec", "schedulerName") == ours
    return is_ours and not part_of(manifest, "metadata", "annotations", names.POD_GROUP)


def _plain(pod: Manifest) -> list[Manifest]:
    """Return the first owner reference of a pod, with an unknown kind."""
    first = mappings_of(pod, "metadata", "ownerReferences")[:1]
    # A kind that no grouper knows has the default rule, which needs no field of the owner.
    return [{**each, "apiVersion": "v1", "kind": "Owner"} for each in first]


def _stub(pod: Manifest, reference: Manifest) -> Manifest:
    """Return an owner object from its reference."""
    metadata = {"name": reference["name"], "namespace": pod["metadata"].get("namespace"), "uid": reference["uid"]}
    return {"apiVersion": reference["apiVersion"], "kind": reference["kind"], "metadata": metadata, "spec": {}}


def _place(manifest: Manifest) -> tuple[str, str]:
    return text_of(manifest, "metadata", "namespace"), text_of(manifest, "metadata", "name")


def taken(case: Case, adoption: Adoption) -> list[Pod]:
    """Return the pods that an adoption takes over."""
    return [pod for pod in case.objects.pods if _is_taken(pod, adoption)]


def _is_taken(pod: Pod, adoption: Adoption) -> bool:
    """Return whether kai takes over a pod: its scheduler is adopted, and it has no group of kai's yet."""
    is_named = adoption.takes(pod.spec.scheduler_name)
    return is_named and names.POD_GROUP not in pod.metadata.annotations and pod.status.phase not in ENDED


def _owners(pods: Sequence[Manifest], known: set[str]) -> Iterator[Manifest]:
    """Yield the owners of pods, as far as their references describe them."""
    for pod in pods:
        for each in mappings_of(pod, "metadata", "ownerReferences")[:1]:
            if each.get("uid") not in known:
                known.add(str(each.get("uid")))
                yield _stub(pod, each)


def around_of(case: Case) -> Around:
    """Return the surroundings of an adoption in a case."""
    queues = case.objects.queues
    tops = [each.spec.resources for each in queues if not each.spec.parent_queue and each.spec.resources is not None]
    return Around(
        gpus=gpus_of_nodes(node.status.allocatable for node in case.objects.nodes),
        queues={each.metadata.name: each.spec.parent_queue for each in queues},
        quota=sum(max(0.0, each.gpu.quota) for each in tops),
    )


def _replaced(kept: Sequence[T], more: Sequence[T]) -> tuple[T, ...]:
    """Return objects with ``more`` in place of those of the same name; new ones come last."""
    fresh: dict[Key, T] = {key_of(each): each for each in more}
    return (*(fresh.pop(key_of(each), each) for each in kept), *fresh.values())


def with_adopted_of_cluster(case: Case, access: Access, adoption: Adoption) -> Case:
    """Return a case that was read from a cluster with the pods of other schedulers among kai's.

    Raises: UnreachableError, or InputError for an object that cannot be read.
    """
    return with_adopted(case, adoption, anyio.run(_list_beside, access, case, adoption, SystemClock()))


async def _list_beside(access: Access, case: Case, adoption: Adoption, clock: Clock) -> list[Mapping[str, Any]]:
    """Return the further objects that an adoption needs: owners of pods, and definitions of queues.

    Kinds that the user may not list are left out; such owners are known only by the references to them.
    """
    found: list[Mapping[str, Any]] = []
    async with lister_of(access, clock) as lister:

        async def listed(api_version: str, kind: str) -> list[Mapping[str, Any]]:
            try:
                # The plural is guessed. Where the guess is wrong, owners are known only by references to them.
                several = await lister.list_manifests(api_version, f"{kind.lower()}s")
            except UnreachableError as error:
                if not error.missing:
                    raise
                several = []
            return [{"apiVersion": api_version, "kind": kind, **each} for each in several]

        for version, kind in QUEUE_KINDS.get(adoption.queue_from, ()):
            if all(each["kind"] != kind for each in found):  # the same kind may be served in several API versions
                found += await listed(version, kind)
        for place in HELD_KINDS.get(adoption.queue_from, ()):
            found += [each for each in await listed(*place) if is_held(each)]
        wanted = {
            (each.api_version, each.kind, each.uid)
            for pod in taken(case, adoption)
            for each in pod.metadata.owner_references
        }
        known: set[tuple[str, str, str]] = set()
        # Owners have owners: a pod of a Kueue job may lie below a JobSet, and
        # the topmost one decides the rules of grouping.
        while wanted - known:
            fresh, known = wanted - known, known | wanted
            for place in sorted({each[:2] for each in fresh}):
                uids = {uid for *kind, uid in fresh if tuple(kind) == place}
                owners = [each for each in await listed(*place) if part_of(each, "metadata", "uid") in uids]
                found += owners
                wanted |= {
                    (str(each.get("apiVersion")), str(each.get("kind")), str(each.get("uid")))
                    for owner in owners
                    for each in mappings_of(owner, "metadata", "ownerReferences")
                }
    return found
