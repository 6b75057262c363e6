"""Queues proposed from a cluster's present divisions: namespaces with ResourceQuotas, queues of Kueue or of Volcano.

``propose`` reads manifests and answers two questions: which queue a workload goes into, and which queues should
exist. Each proposal has the origin of its amounts. Nothing is written to a cluster.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import attrs

from kai.api import names, values
from kai.api.values import BadValue
from kai.basics.parsing import mapping_of, mappings_of, part_of, text_of
from kai.manifests.unused import templates

NAMESPACE: Final = "namespace"
KUEUE: Final = "kueue"
VOLCANO: Final = "volcano"
UNLIMITED: Final = -1.0
ROOT: Final = "all"
LOCAL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_LOCAL_DEFAULT: Final = "default"
_VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
_VOLCANO_ROOT: Final = "root"
_VOLCANO_DEFAULT: Final = "default"
_KUEUE: Final = "kueue.x-k8s.io/"
_VOLCANO: Final = "scheduling.volcano.sh/"
_UNITS: Final = {"gpu": 1, "cpu": 1000, "memory": 1}
_MEGABYTE: Final = 1_000_000
_RESOURCES: Final = ("gpu", "cpu", "memory")
_SYSTEM: Final = ("kube-system", "kube-public", "kube-node-lease", names.KAI_NAMESPACE)

QUEUE_KINDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    NAMESPACE: (("v1", "ResourceQuota"),),
    KUEUE: tuple(
        (f"{_KUEUE}{version}", kind)
        for kind in ("ClusterQueue", "LocalQueue", "Cohort")
        for version in ("v1beta2", "v1beta1", "v1alpha1")
    ),
    VOLCANO: ((f"{_VOLCANO}v1beta1", "Queue"), (f"{_VOLCANO}v1beta1", "PodGroup")),
}
"""The kinds that define today's queues, by source; of several API versions the newest first."""

Manifest = Mapping[str, Any]
Amounts = Mapping[str, float]
"""Amounts by kai's resource names, in the units of a queue: GPUs, millicores, megabytes."""


@attrs.frozen(kw_only=True)
class Share:
    """The quota, weight and limit of a queue for one resource, in the units of a queue; -1 is unlimited."""

    quota: float = UNLIMITED
    weight: float = 1.0
    limit: float = UNLIMITED


@attrs.frozen(kw_only=True)
class Proposal:
    """A queue that could be applied, and the origin of its amounts."""

    name: str
    parent: str = ""
    shares: Mapping[str, Share] = attrs.field(factory=dict)
    """Shares by ``gpu``, ``cpu`` and ``memory``; a missing resource is unlimited."""
    source: str = ""
    """The object that it stands for: ``namespace research``."""
    reason: str = ""
    """The origin of its amounts."""
    title: str = ""
    """The original name, if it is not a valid name of a queue."""

    def share(self, resource: str) -> Share:
        """Return its share of a resource."""
        return self.shares.get(resource, Share())

    def manifest(self) -> dict[str, Any]:
        """Return the queue as a manifest."""
        spec: dict[str, Any] = {"displayName": self.title} if self.title else {}
        if self.parent:
            spec["parentQueue"] = self.parent
        shares = {name: self.share(name) for name in _RESOURCES}
        spec["resources"] = {
            name: {"quota": _plain(share.quota), "overQuotaWeight": _plain(share.weight), "limit": _plain(share.limit)}
            for name, share in shares.items()
        }
        return {"apiVersion": names.QUEUE_VERSION, "kind": "Queue", "metadata": {"name": self.name}, "spec": spec}


@attrs.frozen(kw_only=True)
class Around:
    """Facts about the cluster besides the manifests that are read."""

    gpus: float = 0.0
    queues: Mapping[str, str] = attrs.field(factory=dict)
    """The parent of each queue that exists."""
    quota: float = 0.0
    """The GPU quota of all top queues together."""


@attrs.frozen(kw_only=True)
class Proposed:
    """The proposal for the manifests: ``queue_of`` a workload, and ``made``, the queues for a set of wanted names."""

    queue_of: Callable[[Manifest], str] = lambda _: ""
    made: Callable[[Collection[str]], tuple[Proposal, ...]] = lambda _: ()
    notes: tuple[str, ...] = ()


def propose(manifests: Sequence[Manifest], queue_from: str, around: Around | None = None) -> Proposed:
    """Return the queues that the manifests of a cluster call for; none where ``queue_from`` is empty."""
    if not queue_from:
        return Proposed()
    here = _known(manifests, Around() if around is None else around)
    if queue_from == NAMESPACE:
        return _from_namespaces(manifests, here)
    return _from_kueue(manifests, here) if queue_from == KUEUE else _from_volcano(manifests, here)


def sources_of_queues(manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
    """Return the objects that define queues: quotas of namespaces, queues of Kueue and of Volcano."""
    return tuple(each for each in manifests if _says_queues(str(each.get("apiVersion")), each.get("kind")))


def _says_queues(version: str, kind: object) -> bool:
    group = version.rpartition("/")[0]
    return any(
        (group, kind) == (known.rpartition("/")[0], name) for each in QUEUE_KINDS.values() for known, name in each
    )


def root_name(taken: Collection[str]) -> str:
    """Return a name, not in ``taken``, for a queue above all others."""
    return next(name for name in (ROOT, *(f"{ROOT}-{number}" for number in range(2, 1000))) if name not in taken)


def named_queue(text: str) -> str:
    """Return a valid queue name for another system's name: lower-case letters, digits and hyphens."""
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in text.lower())
    return kept.strip("-") or "queue"


def children_quota(children: Iterable[Proposal], resource: str) -> float:
    """Return the sum of the queues' quotas of a resource; unlimited if one of them is."""
    quotas = [each.share(resource).quota for each in children]
    return UNLIMITED if any(quota < 0 for quota in quotas) else sum(quotas)


def gpus_of_nodes(allocatable: Iterable[Mapping[str, Any]]) -> float:
    """Return the number of GPUs that all nodes offer together."""
    return sum(_amounts(each).get("gpu", 0.0) for each in allocatable)


# --- Namespaces ----------------------------------------------------------------------------------------------------


def _from_namespaces(manifests: Sequence[Manifest], around: Around) -> Proposed:
    bounds: dict[str, dict[str, float]] = {}
    sources: dict[str, list[str]] = {}
    notes: list[str] = []
    for manifest in _of_kind(manifests, "v1", "ResourceQuota"):
        namespace, spec = _namespace_of(manifest), mapping_of(manifest, "spec")
        name = f"ResourceQuota {namespace}/{text_of(manifest, 'metadata', 'name')}"
        if spec.get("scopes") or spec.get("scopeSelector"):
            notes.append(f"{name}: its scopes have no counterpart in a queue; it is left out")
            continue
        hard = _amounts(mapping_of(spec, "hard"))
        if not hard or namespace in _SYSTEM:
            continue
        sources.setdefault(namespace, []).append(name)
        for resource, amount in hard.items():
            # All quotas of a namespace hold together, so the lowest decides.
            known = bounds.setdefault(namespace, {})
            known[resource] = min(amount, known.get(resource, amount))

    def made(wanted: Collection[str]) -> tuple[Proposal, ...]:
        fresh = [name for name in dict.fromkeys((*wanted, *sorted(bounds))) if name not in around.queues]
        if not fresh:
            return ()
        root = root_name({*fresh, *around.queues})
        free = around.gpus - around.quota - sum(bounds.get(name, {}).get("gpu", 0.0) for name in fresh)
        unbound = [name for name in fresh if "gpu" not in bounds.get(name, {})]
        part = float(max(0, int(free / len(unbound)))) if unbound else 0.0
        children = [_of_namespace(name, root, bounds.get(name, {}), sources.get(name, ()), part) for name in fresh]
        quota = children_quota(children, "gpu")
        above = Proposal(
            name=root,
            shares={"gpu": Share(quota=quota)},
            source="all namespaces",
            reason="the sum of the queues below it",
        )
        return (above, *children)

    return Proposed(queue_of=_namespace_of, made=made, notes=tuple(notes))


def _of_namespace(name: str, root: str, bounds: Amounts, sources: Sequence[str], part: float) -> Proposal:
    shares = {resource: Share(quota=amount, limit=amount) for resource, amount in bounds.items()}
    reason = ", ".join(sources)
    if "gpu" not in bounds:
        shares["gpu"] = Share(quota=part)
        equal = f"an equal part of the GPUs, {part:g}"
        reason = f"{reason}; {equal}" if reason else equal
    return Proposal(name=name, parent=root, shares=shares, source=f"namespace {name}", reason=reason)


# --- Kueue ---------------------------------------------------------------------------------------------------------


def _from_kueue(manifests: Sequence[Manifest], around: Around) -> Proposed:
    kueue = [each for each in manifests if str(each.get("apiVersion")).startswith(_KUEUE)]
    local = {
        (_namespace_of(each), text_of(each, "metadata", "name")): text_of(each, "spec", "clusterQueue")
        for each in kueue
        if each.get("kind") == "LocalQueue"
    }
    clusters = {text_of(each, "metadata", "name"): each for each in kueue if each.get("kind") == "ClusterQueue"}
    cohorts = {text_of(each, "metadata", "name"): each for each in kueue if each.get("kind") == "Cohort"}

    def queue_of(manifest: Manifest) -> str:
        labels = mapping_of(manifest, "metadata", "labels")
        chosen = local.get((_namespace_of(manifest), str(labels.get(LOCAL_QUEUE) or _LOCAL_DEFAULT)), "")
        return _called(chosen, clusters, cohorts) if chosen else ""

    def made(wanted: Collection[str]) -> tuple[Proposal, ...]:
        _ = wanted  # all of Kueue's queues are proposed, whether or not a workload is in them
        leaves = [_of_cluster_queue(name, each, clusters, cohorts) for name, each in clusters.items()]
        parents = _cohorts(leaves, cohorts)
        return tuple(each for each in (*parents, *leaves) if each.name not in around.queues)

    return Proposed(queue_of=queue_of, made=made, notes=tuple(_kueue_notes(clusters, local)))


def _kueue_notes(clusters: Mapping[str, Manifest], local: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for name, each in clusters.items():
        if text_of(each, "spec", "stopPolicy") not in {"", "None"}:
            yield f"ClusterQueue {name} is stopped ({text_of(each, 'spec', 'stopPolicy')}); its queue is open"
        lends = [resource for _, resource in _nominal(each) if resource.get("lendingLimit") is not None]
        if lends:
            yield f"ClusterQueue {name}: lendingLimit has no counterpart; kai lends what is not used, and reclaims it"
    for (namespace, name), chosen in local.items():
        if chosen not in clusters:
            yield f"LocalQueue {namespace}/{name}: its ClusterQueue {chosen} is not there; no queue is made of it"


def _cohort_of(manifest: Manifest) -> str:
    """Return the cohort of a ClusterQueue, or the parent of a cohort, in each version of Kueue's API."""
    spec = mapping_of(manifest, "spec")
    return next((str(spec[key]) for key in ("cohortName", "cohort", "parentName", "parent") if spec.get(key)), "")


def _called(name: str, clusters: Mapping[str, Manifest], cohorts: Mapping[str, Manifest]) -> str:
    """Return the queue name for a ClusterQueue: its own, unless a cohort has the same name."""
    above = {_cohort_of(each) for each in (*clusters.values(), *cohorts.values())} | set(cohorts)
    return f"{name}-queue" if name in above else name


def _nominal(manifest: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Yield each flavor and resource of a ClusterQueue or a cohort."""
    for group in mappings_of(manifest, "spec", "resourceGroups"):
        for flavor in mappings_of(group, "flavors"):
            for resource in mappings_of(flavor, "resources"):
                yield str(flavor.get("name")), resource


def _of_cluster_queue(
    name: str, manifest: Manifest, clusters: Mapping[str, Manifest], cohorts: Mapping[str, Manifest]
) -> Proposal:
    cohort = _cohort_of(manifest)
    found: dict[str, list[tuple[float, float]]] = {}
    flavors: dict[str, None] = {}
    for flavor, resource in _nominal(manifest):
        flavors[flavor] = None
        nominal = _amounts({str(resource.get("name")): resource.get("nominalQuota", 0)})
        borrowed = _amounts({str(resource.get("name")): resource.get("borrowingLimit")})
        for key, amount in nominal.items():
            # Source: Kueue. Without a borrowingLimit a queue borrows without a bound, but only from its cohort.
            most = UNLIMITED if cohort and key not in borrowed else amount + borrowed.get(key, 0.0)
            found.setdefault(key, []).append((amount, most))
    weight = _number(part_of(manifest, "spec", "fairSharing", "weight"), 1.0)
    shares = {
        key: Share(
            quota=sum(quota for quota, _ in amounts),
            limit=UNLIMITED if any(limit < 0 for _, limit in amounts) else sum(limit for _, limit in amounts),
            weight=weight,
        )
        for key, amounts in found.items()
    }
    many = f" of {len(flavors)} flavors together" if len(flavors) > 1 else ""
    borrow = "; limit: nominalQuota and borrowingLimit" if cohort else "; no cohort to borrow from"
    return Proposal(
        name=_called(name, clusters, cohorts),
        parent=cohort,
        shares=shares,
        source=f"ClusterQueue {name}",
        reason=f"nominalQuota{many}{borrow}",
    )


def _cohorts(leaves: Sequence[Proposal], cohorts: Mapping[str, Manifest]) -> list[Proposal]:
    """Return a queue for each named cohort, parents first."""
    wanted = [*dict.fromkeys(each.parent for each in leaves if each.parent), *cohorts]
    for name in wanted:  # the list grows by the parents
        above = _cohort_of(cohorts[name]) if name in cohorts else ""
        if above and above not in wanted:
            wanted.append(above)
    parents = {name: _cohort_of(cohorts[name]) if name in cohorts else "" for name in dict.fromkeys(wanted)}
    found: dict[str, Proposal] = {}
    # The deepest first: a cohort's quota is the sum of those below it.
    for name in sorted(parents, key=lambda each: -_depth(each, parents)):
        below = [each for each in (*leaves, *found.values()) if each.parent == name]
        own: dict[str, float] = {}
        for _, resource in _nominal(cohorts.get(name, {})):
            for key, amount in _amounts({str(resource.get("name")): resource.get("nominalQuota", 0)}).items():
                own[key] = own.get(key, 0.0) + amount
        named: set[str] = {key for each in below for key in each.shares} | set(own)
        quotas: dict[str, float] = {key: children_quota(below, key) for key in _RESOURCES if key in named}
        shares = {key: Share(quota=quota if quota < 0 else quota + own.get(key, 0.0)) for key, quota in quotas.items()}
        reason = "the sum of the queues below it" + (" and its own nominalQuota" if own else "")
        found[name] = Proposal(name=name, parent=parents[name], shares=shares, source=f"cohort {name}", reason=reason)
    return list(reversed(found.values()))


def _depth(name: str, parents: Mapping[str, str]) -> int:
    return next(depth for depth in count() if depth > len(parents) or not (name := parents.get(name, "")))


# --- Volcano -------------------------------------------------------------------------------------------------------


def _from_volcano(manifests: Sequence[Manifest], around: Around) -> Proposed:
    found = {text_of(each, "metadata", "name"): each for each in manifests if _is_volcano(each, "Queue")}
    parents = {text_of(each, "spec", "parent") for each in found.values()}
    groups = {
        (_namespace_of(each), text_of(each, "metadata", "name")): text_of(each, "spec", "queue")
        for each in manifests
        if _is_volcano(each, "PodGroup")
    }

    def queue_of(manifest: Manifest) -> str:
        metadata, spec = mapping_of(manifest, "metadata"), mapping_of(manifest, "spec")
        annotations = mapping_of(metadata, "annotations")
        group = groups.get((_namespace_of(manifest), str(annotations.get("scheduling.k8s.io/group-name"))), "")
        own = spec.get("queue") if isinstance(spec.get("queue"), str) else None
        said = own or mapping_of(metadata, "labels").get(_VOLCANO_QUEUE) or annotations.get(_VOLCANO_QUEUE) or group
        inner = [
            str(mapping_of(each, "metadata", "annotations")[_VOLCANO_QUEUE])
            for _, each in templates(manifest)
            if mapping_of(each, "metadata", "annotations").get(_VOLCANO_QUEUE)
        ]
        return str(said or next(iter(inner), _VOLCANO_DEFAULT))

    def made(wanted: Collection[str]) -> tuple[Proposal, ...]:
        # Volcano's root stands above all queues, and bounds nothing. Top queues of kai need none above them.
        kept = {name: each for name, each in found.items() if name != _VOLCANO_ROOT or _VOLCANO_ROOT in wanted}
        made = [_of_volcano(name, each) for name, each in kept.items()]
        made += [
            Proposal(name=name, source=f"queue {name}", reason="no Queue of this name: no bounds")
            for name in wanted
            if name not in kept
        ]
        return tuple(each for each in made if each.name not in around.queues)

    closed = [name for name, each in found.items() if text_of(each, "status", "state") in {"Closed", "Closing"}]
    kept_jobs = [name for name, each in found.items() if part_of(each, "spec", "reclaimable") is False]
    notes = [f"Queue {name} is closed in Volcano; its queue is open" for name in closed]
    notes += [
        f"Queue {name}: reclaimable: false has no counterpart; kai takes back what is above the fair share"
        for name in kept_jobs
        if name not in parents
    ]
    return Proposed(queue_of=queue_of, made=made, notes=tuple(notes))


def _is_volcano(manifest: Manifest, kind: str) -> bool:
    return manifest.get("kind") == kind and str(manifest.get("apiVersion")).startswith(_VOLCANO)


def _of_volcano(name: str, manifest: Manifest) -> Proposal:
    spec = mapping_of(manifest, "spec")
    deserved = _amounts(mapping_of(spec, "deserved"))
    guaranteed = _amounts(mapping_of(spec, "guarantee", "resource"))
    most = _amounts(mapping_of(spec, "capability"))
    weight = _number(spec.get("weight"), 1.0)
    shares: dict[str, Share] = {}
    for key in _RESOURCES:
        quota = deserved.get(key, guaranteed.get(key, 0.0 if key == "gpu" else UNLIMITED))
        shares[key] = Share(
            quota=min(quota, most[key]) if key in most else quota, weight=weight, limit=most.get(key, UNLIMITED)
        )
    bounds = [word for word in ("deserved", "guarantee", "capability", "weight") if spec.get(word)]
    parent = text_of(spec, "parent")
    return Proposal(
        name=name,
        parent="" if parent == _VOLCANO_ROOT else parent,
        shares=shares,
        source=f"queue {name}",
        reason=", ".join(bounds) or "no bounds",
    )


# --- Manifests -----------------------------------------------------------------------------------------------------


def _known(manifests: Sequence[Manifest], around: Around) -> Around:
    """Return the known facts about the cluster, extended by its manifests: GPUs, and the queues that exist."""
    gpus, quota, queues = around.gpus, around.quota, dict(around.queues)
    gpus += gpus_of_nodes(mapping_of(node, "status", "allocatable") for node in _of_kind(manifests, "v1", "Node"))
    for queue in _of_kind(manifests, names.QUEUE_VERSION, "Queue"):
        parent = text_of(queue, "spec", "parentQueue")
        queues[text_of(queue, "metadata", "name")] = parent
        if not parent:
            quota += max(0.0, _number(part_of(queue, "spec", "resources", "gpu", "quota"), 0.0))
    return Around(gpus=gpus, queues=queues, quota=quota)


def _of_kind(manifests: Sequence[Manifest], version: str, kind: str) -> Iterator[Manifest]:
    return (each for each in manifests if each.get("kind") == kind and each.get("apiVersion") == version)


def _namespace_of(manifest: Manifest) -> str:
    return text_of(manifest, "metadata", "namespace") or "default"


def _amounts(written: Mapping[str, Any]) -> dict[str, float]:
    """Return amounts by kai's resource names, in the units of a queue; resources that no queue bounds are dropped."""
    found: dict[str, float] = {}
    for key, text in written.items():
        bare = key.removeprefix("requests.")
        resource = "gpu" if bare in names.GPU_RESOURCES else bare if bare in {"cpu", "memory"} else ""
        if not resource or text is None:
            continue
        try:
            amount = values.amount(str(text), _UNITS[resource])
        except BadValue:
            continue
        found[resource] = found.get(resource, 0.0) + (amount / _MEGABYTE if resource == "memory" else float(amount))
    return found


def _number(value: object, default: float) -> float:
    """Return a number, which some APIs write as a quantity."""
    try:
        return default if value is None else values.amount(str(value), 1000) / 1000
    except BadValue:
        return default


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else round(value, 3)
