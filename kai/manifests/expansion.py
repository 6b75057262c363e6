"""Workloads to the pods that their controllers would create, with owners and groups. Start reading at ``expand``.

    manifests ─ model of each kind (``workloads``) → pods with owners ─ rules of the pod grouper (``grouping``) → groups

An object whose children are in the input is not expanded: then the input comes from a cluster, and its controller has
acted already. Objects that are not part of the result are counted (``unused``).
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import attrs

from kai.api import names
from kai.api.codec import structuring
from kai.api.conventions.binding import is_held, read_grant
from kai.api.kubernetes.pod import ENDED
from kai.api.scheduling.shard import Config, SchedulingShard
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of, mappings_of, part_of
from kai.manifests.gpus import is_compute_domain, template_of
from kai.manifests.grouping import Grouping, Index, Manifest, circles
from kai.manifests.unused import (
    CONFIGURES,
    NO_GROUP,
    NO_NODE,
    NO_PODS,
    NOT_EXPANDED,
    Unused,
    counted,
    for_scheduler,
    kind_title,
    managed_by,
    names_scheduler,
    why_not_read,
)
from kai.manifests.workloads.grove import is_binding, topology_of
from kai.manifests.workloads.making import AbsentError, Condition, other_manager, taken_apart, uid_of
from kai.manifests.workloads.ray import check_submission
from kai.manifests.workloads.table import (
    CLUSTER_WIDE,
    TEMPLATES,
    as_kept,
    has_model,
    is_ambiguous,
    karta_of,
    looks_around,
    made_of,
)
from kai.roles.podgrouper import Kind, Resource, Settings


@attrs.frozen(kw_only=True)
class Problem:
    """Why an object cannot be expanded: its index among the manifests, and a message."""

    at: int
    message: str


@attrs.frozen(kw_only=True)
class Job:
    """A pod group with its pods: the index of the object that it comes from, and manifests."""

    at: int
    group: Mapping[str, Any]
    pods: tuple[Mapping[str, Any], ...]


@attrs.frozen(kw_only=True)
class Later:
    """Pods of one group that a controller creates once conditions hold, and the group once it includes them."""

    at: int
    conditions: tuple[Condition, ...]
    group: Mapping[str, Any]
    pods: tuple[Mapping[str, Any], ...]


@attrs.frozen(kw_only=True)
class Expansion:
    """The objects for intake, and the input objects that are not among them."""

    manifests: tuple[Mapping[str, Any], ...]
    origins: tuple[int, ...] = ()
    """The index in the input of each manifest; -1 for new ones."""
    sources: tuple[int, ...] = ()
    """The index of the workload that each manifest comes from; -1 for a new group or priority class."""
    unused: tuple[Unused, ...] = ()
    problems: tuple[Problem, ...] = ()
    absent: tuple[Problem, ...] = ()
    """Objects that are not expanded because they name an object that is not in the input, but may be in the cluster."""
    not_expanded: tuple[Problem, ...] = ()
    """Workloads for this scheduler of a kind that kai does not expand."""
    later: tuple[Later, ...] = ()
    """Pods that controllers create later, if requested; they are not among the manifests."""
    workloads: int = 0
    """The number of workloads and bare pods for this scheduler."""
    owners: Mapping[str, tuple[tuple[str, str, str], ...]] = attrs.field(factory=dict, repr=False)
    """Kind, name and UID of the owners of an object that creates pods, by the UID of that object."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The pod groups in the order of the input; a new one takes the position of its workload."""
        members: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        first: dict[tuple[str, str], int] = {}
        for manifest, at in zip(self.manifests, self.sources, strict=True):
            if manifest.get("kind") == "Pod":
                annotations = mapping_of(manifest, "metadata", "annotations")
                key = (_place_of(manifest, "default")[0], str(annotations.get(names.POD_GROUP)))
                members.setdefault(key, []).append(manifest)
                first.setdefault(key, at)
        jobs = [
            Job(at=at if at >= 0 else first.get(key, -1), group=manifest, pods=tuple(members.get(key, ())))
            for manifest, at in zip(self.manifests, self.origins, strict=True)
            if manifest.get("kind") == "PodGroup"
            for key in [_place_of(manifest, "default")]
        ]
        # New groups come last among the manifests; readers want them where their workload is.
        return tuple(sorted(jobs, key=lambda job: job.at))


@attrs.frozen(kw_only=True)
class Surroundings:
    """The state of the cluster to which manifests are applied."""

    scheduler_name: str = names.SCHEDULER_NAME
    namespace: str = "default"
    """The namespace for objects that name none."""
    queue: str = ""
    """The queue of all new objects, overriding that of their workload; "" for the workload's own."""
    pods: AbstractSet[tuple[str, str]] = frozenset()
    """Namespace and name of every pod: new pods get other names."""
    objects: Sequence[Mapping[str, Any]] = ()
    """Other objects for pod grouping to read: priority classes, and existing groups."""
    ungrouped: AbstractSet[str] = frozenset()
    """UIDs of pods and owners without a group in the cluster: new groups for them get readable names."""
    with_later: bool = False
    """Whether pods that controllers create later are included."""
    operators: AbstractSet[str] = frozenset()
    """API groups whose operators write this scheduler's name into the pods that they create."""


def expand(manifests: Sequence[Mapping[str, Any]], around: Surroundings | None = None) -> Expansion:
    """Return the objects with the pods and groups that controllers would add; takes microseconds if there are none.

    Objects of kinds that snapshots do not use are left out, and counted.
    """
    around = Surroundings() if around is None else around
    namespace = around.namespace
    work = _Expanding(
        around.scheduler_name,
        namespace,
        _names_of_owners(manifests),
        circles(manifests, namespace),
        queue=around.queue,
        with_later=around.with_later,
        operators=around.operators,
        topologies={str(part_of(each, "metadata", "name")) for each in manifests if each.get("kind") == "Topology"},
        named=set(around.pods),
        fresh=set(around.ungrouped),
        groups={_place_of(each, namespace) for each in (*manifests, *around.objects) if each.get("kind") == "PodGroup"},
    )
    work.index.add([dict(each) for each in around.objects])
    work.named |= {_place_of(each, namespace) for each in manifests if each.get("kind") == "Pod"}
    for at, manifest in enumerate(manifests):
        work.take(at, manifest)
    return work.finish()


def is_workload(manifest: Mapping[str, Any], described: Container[tuple[str, str]] = ()) -> bool:
    """Return whether an object is a pod or a group, or creates pods by a controller that has a model.

    ``described`` are the groups and kinds that Kartas describe.
    """
    kind = str(manifest.get("kind"))
    if (str(manifest.get("apiVersion")).rpartition("/")[0], kind) in described:
        return True
    return kind in {"Pod", "PodGroup"} or has_model(Kind.of(str(manifest.get("apiVersion")), kind))


def numbered(manifest: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return a copy of a workload with ``number`` appended to its name and to the name of its group."""
    metadata = dict(mapping_of(manifest, "metadata"))
    metadata["name"] = f"{metadata.get('name') or metadata.get('generateName')}-{number}"
    # A copy with the same UID would be taken for the same object.
    metadata.pop("uid", None)
    annotations = mapping_of(metadata, "annotations")
    if names.POD_GROUP in annotations:
        metadata["annotations"] = {**annotations, names.POD_GROUP: f"{annotations[names.POD_GROUP]}-{number}"}
    return {**manifest, "metadata": metadata}


@attrs.define
class _Expanding:
    """The state of one expansion."""

    scheduler_name: str
    namespace: str
    owners: frozenset[tuple[str, str]]
    """Kind and UID, and kind and name, of every owner that pods or workloads of the input name."""
    circles: Mapping[tuple[str, str], str]
    """By kind, and namespace and name: the chain of owners that leads back to an object."""
    queue: str = ""
    with_later: bool = False
    operators: AbstractSet[str] = frozenset()
    index: Index = attrs.field(factory=Index)
    kept: dict[int, Mapping[str, Any]] = attrs.field(factory=dict)
    loose: list[tuple[int, Manifest]] = attrs.field(factory=list)
    """Pods without a group so far."""
    coming: list[tuple[int, Manifest, tuple[Condition, ...]]] = attrs.field(factory=list)
    """Pods that are created later."""
    unborn: list[Manifest] = attrs.field(factory=list)
    """Objects between later pods and their workloads; they are hidden while the first pods are grouped."""
    adopted: set[int] = attrs.field(factory=set)
    """Indexes of pods whose owners may be outside the input: if they cannot be grouped, the input is not at fault."""
    late: list[tuple[int, Mapping[str, Any]]] = attrs.field(factory=list)
    """Workloads whose controllers read other objects: expanded once all of those are known."""
    unused: list[Unused] = attrs.field(factory=list)
    problems: list[Problem] = attrs.field(factory=list)
    absent: list[Problem] = attrs.field(factory=list)
    strange: list[tuple[int, Mapping[str, Any]]] = attrs.field(factory=list)
    """Workloads of kinds without a model."""
    fresh: set[str] = attrs.field(factory=set)
    named: set[tuple[str, str]] = attrs.field(factory=set)
    """Namespace and name of every pod so far."""
    topologies: AbstractSet[str] = frozenset()
    """The names of all topologies of the input."""
    groups: AbstractSet[tuple[str, str]] = frozenset()
    """Namespace and name of every pod group in the input."""
    workloads: int = 0

    def take(self, at: int, manifest: Mapping[str, Any]) -> None:
        """Classify one object of the input."""
        kind = manifest.get("kind")
        if not isinstance(kind, str) or not isinstance(manifest.get("apiVersion"), str):
            self.kept[at] = manifest  # it is invalid, which reading it reports
        elif kind == "Pod" and manifest["apiVersion"] == "v1":
            self._take_pod(at, manifest)
        elif is_compute_domain(manifest):
            self._take_made(at, template_of(manifest))
        elif is_binding(manifest):
            self.index.add([self._placed(manifest)])
            self._take_made(
                at, None if str(part_of(manifest, "metadata", "name")) in self.topologies else topology_of(manifest)
            )
        elif looks_around(Kind.of(manifest["apiVersion"], kind)):
            self.late.append((at, manifest))
        elif has_model(Kind.of(manifest["apiVersion"], kind)):
            self._take_workload(at, manifest)
        elif structuring.kind_of(manifest) is not None:
            self.kept[at] = manifest
            self.index.add([self._placed(manifest)])
            self._note(kind, CONFIGURES if _is_configuration(manifest) else "", manifest)
        else:
            self._take_stranger(at, manifest, kind)

    def _take_made(self, at: int, made: Mapping[str, Any] | None) -> None:
        """Replace an object by the object that its controller makes from it."""
        # Otherwise nothing takes its place: the scheduler reads no such object itself.
        if made is not None:
            self.kept[at] = made
            self.index.add([self._placed(made)])

    def finish(self) -> Expansion:
        """Group the pods without a group, and return the result."""
        # Their controllers read other objects of the input, which may stand after them in the files.
        for at, manifest in self.late:
            self._take_workload(at, manifest)
        made: list[Manifest] = []
        grouping = Grouping(self.index, Settings(scheduler_name=self.scheduler_name), self.fresh)
        # A Karta may stand after the objects that it describes, so unknown kinds are decided about last.
        strange, self.strange = self.strange, []
        for at, manifest in strange:
            kind = Kind.of(manifest["apiVersion"], manifest["kind"])
            if karta_of(kind, self.index) is not None:
                self._take_workload(at, manifest)
            else:
                self.strange.append((at, manifest))
        not_expanded = [self._unmodelled(at, manifest, grouping) for at, manifest in self.strange]
        if self.loose:
            grouped: list[Manifest] = []
            for at, pod in self.loose:
                done, reason = grouping.group(pod)
                grouped.append(done)
                # A pod whose owner is elsewhere may be grouped in the cluster.
                if reason and at not in self.adopted:
                    self.problems.append(Problem(at=at, message=reason))
                else:
                    self._note("Pod", reason or self._absent_group(done, grouping.groups), done)
            made, pods = grouping.made(grouped)
            made += pods
        later = self._group_later(grouping) if self.coming else ()
        # The first problem of each workload: all of its pods repeat it.
        first = {problem.at: problem for problem in reversed(self.problems)}
        return Expansion(
            manifests=(*self.kept.values(), *made),
            origins=(*self.kept, *(-1 for _ in made)),
            sources=(*self.kept, *([-1] * (len(made) - len(self.loose))), *(at for at, _ in self.loose)),
            unused=counted(self.unused),
            problems=tuple(first[at] for at in sorted(first)),
            absent=tuple(self.absent),
            not_expanded=tuple(not_expanded),
            later=later,
            workloads=self.workloads,
            owners=self.index.owners(),
        )

    def _group_later(self, grouping: Grouping) -> tuple[Later, ...]:
        """Return the later pods, each after the pods that it waits for, and their groups at that time."""
        self.index.add(self.unborn)
        self.index.add(pod for _, pod, _ in self.coming)
        found: list[Later] = []
        for (at, conditions), members in _in_parts(self.coming):
            pods = []
            for pod in members:
                done, reason = grouping.group(pod)
                if reason:
                    self.problems.append(Problem(at=at, message=reason))
                else:
                    pods.append(done)
            groups, named = grouping.made(pods)
            known = {_place_of(each, self.namespace): each for each in groups if each.get("kind") == "PodGroup"}
            of_group: dict[tuple[str, str], list[Manifest]] = {}
            for pod in named:
                name = str(part_of(pod, "metadata", "annotations", names.POD_GROUP))
                of_group.setdefault((_place_of(pod, self.namespace)[0], name), []).append(pod)
            found += [
                Later(at=at, conditions=conditions, group=known[key], pods=tuple(each))
                for key, each in of_group.items()
                if key in known
            ]
        return tuple(found)

    def _unmodelled(self, at: int, manifest: Mapping[str, Any], grouping: Grouping) -> Problem:
        """Return how a cluster treats pods of a kind without a model."""
        self.workloads += 1
        kind = Kind.of(manifest["apiVersion"], manifest["kind"])
        reason = f"{NOT_EXPANDED}; its pods are grouped in a cluster as {grouping.rule_of(kind)}"
        self._note(kind.kind, reason, manifest, is_strange=True)
        return Problem(at=at, message=f"{kind_title(kind.group, kind.kind)}: {reason}")

    def _take_pod(self, at: int, manifest: Mapping[str, Any]) -> None:
        spec, metadata, status = (mapping_of(manifest, key) for key in ("spec", "metadata", "status"))
        is_ours = spec.get("schedulerName") == self.scheduler_name and status.get("phase") not in ENDED
        self.workloads += is_ours
        if not is_ours or part_of(metadata, "annotations", names.POD_GROUP):
            if is_ours:
                self._note("Pod", self._absent_group(manifest), manifest)
            if not is_ours and not spec.get("nodeName") and status.get("phase") not in ENDED:
                self._note("Pod", for_scheduler(str(spec.get("schedulerName") or ""), self.scheduler_name), manifest)
            self.kept[at] = manifest
            return
        pod = self._placed(manifest)
        self.loose.append((at, pod))
        if part_of(pod, "metadata", "ownerReferences"):
            self.adopted.add(at)

    def _absent_group(self, pod: Mapping[str, Any], made: Container[tuple[str, str]] = ()) -> str:
        """Return the message that the group that a pod names is missing; empty if it exists or is among ``made``.

        For a running pod of a deleted group, a stand-in takes its place.
        """
        annotations = mapping_of(pod, "metadata", "annotations")
        place = (_place_of(pod, self.namespace)[0], str(annotations.get(names.POD_GROUP)))
        grant = read_grant(str(annotations.get(names.GRANTED) or ""))
        is_on_account = part_of(pod, "spec", "nodeName") and is_held(grant, str(part_of(pod, "status", "phase") or ""))
        return "" if is_on_account or place in self.groups or place in made else NO_GROUP

    def _take_workload(self, at: int, manifest: Mapping[str, Any]) -> None:
        try:
            workload = as_kept(Resource.of(self._placed(manifest)))
            # Before it is expanded: its pods find their owners in the index.
            self.index.add([dict(workload.manifest)])
            # Its controller has acted already, so new pods would come twice.
            if self._has_children(workload):
                self._refuse_circle(at, workload)
                return
            manager = other_manager(workload)
            if workload.kind.group in self.operators:
                check_submission(workload)
            pods = [] if manager else [self._as_operator(workload, *each) for each in self._pods_of(at, workload)]
        except AbsentError as error:
            self.workloads += 1
            message = " ".join(str(error).split())
            self.absent.append(Problem(at=at, message=message))
            self._note(str(manifest.get("kind")), message.partition(": ")[2], manifest)
            return
        except InputError as error:
            self.workloads += 1
            self.problems.append(Problem(at=at, message=" ".join(str(error).split())))
            return
        # Remarks are left by models that read the index, about the workload that is expanded now.
        self.absent += [Problem(at=at, message=remark) for remark in self.index.remarks]
        self.index.remarks.clear()
        # Pods for other schedulers are counted as well: a workload without any pods is another finding.
        every = [pod for pod, _ in pods]
        mine = [each for each in pods if part_of(each[0]["spec"], "schedulerName") == self.scheduler_name]
        ours = [pod for pod, conditions in mine if not conditions]
        self.coming += [(at, pod, conditions) for pod, conditions in mine if conditions and self.with_later]
        self.workloads += bool(mine)
        kind = workload.kind.kind
        if manager:
            self._note(kind, managed_by(manager), workload.manifest)
        elif not every and not any(place == at for place, _ in self.strange):
            self._note(kind, NO_NODE if kind == "DaemonSet" else NO_PODS, workload.manifest)
        elif every and not mine:
            scheduler = str(part_of(every[0]["spec"], "schedulerName") or "")
            self._note(kind, for_scheduler(scheduler, self.scheduler_name), workload.manifest)
        self.loose += [(at, pod) for pod in ours]

    def _as_operator(
        self, workload: Resource, pod: Manifest, conditions: tuple[Condition, ...]
    ) -> tuple[Manifest, tuple[Condition, ...]]:
        """Return a pod as its operator leaves it, if that writes this scheduler's name into all of its pods."""
        if workload.kind.group in self.operators:
            pod = {**pod, "spec": {**pod["spec"], "schedulerName": self.scheduler_name}}
        return pod, conditions

    def _refuse_circle(self, at: int, workload: Resource) -> None:
        """Report a workload that is left to its owner although it owns that one: such a circle never has pods."""
        way = self.circles.get((workload.kind.kind, f"{workload.namespace}/{workload.name}"))
        if way:
            self.workloads += 1
            message = f"metadata.ownerReferences: found a circle, {way}, expected owners that end"
            self.problems.append(Problem(at=at, message=message))

    def _in_queue(self, made: Manifest) -> Manifest:
        if not self.queue:
            return made
        metadata = made["metadata"]
        labels = {**mapping_of(metadata, "labels"), names.QUEUE: self.queue}
        return {**made, "metadata": {**metadata, "labels": labels}}

    def _pods_of(
        self, at: int, workload: Resource, above: tuple[Condition, ...] = ()
    ) -> Iterator[tuple[Manifest, tuple[Condition, ...]]]:
        """Yield the pods of a workload with their conditions, and add all objects in between to the index."""
        children: list[tuple[Manifest, tuple[Condition, ...]]] = []
        for each in made_of(workload, self.index):
            made, own = taken_apart(self._in_queue(each))
            if own and not self.with_later and (made["kind"], workload.kind.kind) == ("Pod", "Job"):
                break  # all that follow are later too, and there may be very many
            if made["kind"] != "Pod":
                made = dict(as_kept(Resource.of(made)).manifest)
            children.append((made, (*above, *own)))
        parents = {reference["uid"] for made, _ in children for reference in made["metadata"]["ownerReferences"]}
        self.index.add(made for made, conditions in children if not conditions)
        self.unborn += [made for made, conditions in children if conditions and made["kind"] != "Pod"]
        for made, conditions in children:
            self.fresh.add(made["metadata"]["uid"])
            if made["kind"] == "Pod":
                yield self._with_own_name(made), conditions
            # An object that owns others of this list is only a link: the model has made its children already.
            elif made["metadata"]["uid"] not in parents:
                yield from self._pods_below(at, made, conditions)

    def _pods_below(
        self, at: int, made: Manifest, conditions: tuple[Condition, ...]
    ) -> Iterator[tuple[Manifest, tuple[Condition, ...]]]:
        """Yield the pods of an intermediate object; one of a kind without a model is recorded."""
        kind = Kind.of(made["apiVersion"], made["kind"])
        if has_model(kind):
            yield from self._pods_of(at, Resource.of(made), conditions)
        elif names_scheduler(made.get("spec"), self.scheduler_name):
            self.strange.append((at, made))

    def _with_own_name(self, pod: Manifest) -> Manifest:
        """Return a pod with a unique name: two workloads of one name number their pods alike."""
        place, wanted, number = _place_of(pod, self.namespace), pod["metadata"]["name"], 1
        while place in self.named:
            number += 1
            place = (place[0], f"{wanted}-{number}")
        self.named.add(place)
        if place[1] == wanted:
            return pod
        # A UID derives from the name, so that the same files give the same result each time.
        uid = uid_of("Pod", *place)
        self.fresh.add(uid)
        return {**pod, "metadata": {**pod["metadata"], "name": place[1], "uid": uid}}

    def _take_stranger(self, at: int, manifest: Mapping[str, Any], kind: str) -> None:
        """Count an object of an unknown kind; it is one of our workloads if its pods are for us."""
        self.index.add([self._placed(manifest)])
        group = manifest["apiVersion"].rpartition("/")[0]
        if (group, kind) in TEMPLATES:
            return  # the workloads that name it include it
        if names_scheduler(manifest.get("spec"), self.scheduler_name) or group in self.operators:
            self.strange.append((at, manifest))
        else:
            self._note(kind, why_not_read(manifest["apiVersion"], kind), manifest)

    def _placed(self, manifest: Mapping[str, Any]) -> Manifest:
        """Return an object with the namespace and UID that the API server would give it."""
        metadata = manifest.get("metadata")
        if not isinstance(metadata, Mapping):
            return dict(manifest)
        kind = structuring.kind_of(manifest)
        here = dict(metadata)
        if not here.get("name") and isinstance(here.get("generateName"), str):
            here["name"] = f"{here['generateName']}0"  # the API server appends random characters
        named = (str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind")))
        is_namespaced = named not in CLUSTER_WIDE if kind is None else kind.namespaced
        if is_namespaced and not here.get("namespace"):
            here["namespace"] = self.namespace
        if not here.get("uid"):
            here["uid"] = uid_of(str(manifest.get("kind")), str(here.get("namespace", "")), str(here.get("name")))
            self.fresh.add(here["uid"])
        return {**manifest, "metadata": here}

    def _has_children(self, workload: Resource) -> bool:
        kind = workload.kind.kind
        return (kind, workload.uid) in self.owners or (kind, f"{workload.namespace}/{workload.name}") in self.owners

    def _note(self, kind: str, reason: str, manifest: Mapping[str, Any], *, is_strange: bool = False) -> None:
        if reason:
            name = "/".join(_place_of(manifest, self.namespace))
            group = str(manifest.get("apiVersion")).rpartition("/")[0]
            needed = is_strange or is_ambiguous(group, kind)
            self.unused.append(Unused(kind=kind, reason=reason, group=group if needed else "", names=(name,)))


def _in_parts(
    coming: Iterable[tuple[int, Manifest, tuple[Condition, ...]]],
) -> Iterable[tuple[tuple[int, tuple[Condition, ...]], list[Manifest]]]:
    """Return pods in groups with equal conditions, in the order in which they were made."""
    parts: dict[tuple[int, tuple[Condition, ...]], list[Manifest]] = {}
    for at, pod, conditions in coming:
        parts.setdefault((at, conditions), []).append(pod)
    return parts.items()


def _is_configuration(manifest: Mapping[str, Any]) -> bool:
    kind = structuring.kind_of(manifest)
    return kind is not None and kind.cls in {SchedulingShard, Config}


def _names_of_owners(manifests: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for manifest in manifests:
        version, kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
        if (version, kind) != ("v1", "Pod") and not has_model(Kind.of(version, kind)):
            continue
        metadata = mapping_of(manifest, "metadata")
        for each in mappings_of(metadata, "ownerReferences"):
            # An object that names itself as its owner would seem to have children, and would get no pods.
            if (each.get("kind"), each.get("name")) != (kind, metadata.get("name")):
                found.add((str(each.get("kind")), str(each.get("uid"))))
                # By name as well: an owner that was never applied has no UID in its manifest.
                found.add((str(each.get("kind")), f"{metadata.get('namespace') or 'default'}/{each.get('name')}"))
    return frozenset(found)


def _place_of(manifest: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    metadata = mapping_of(manifest, "metadata")
    return str(metadata.get("namespace") or namespace), str(metadata.get("name"))
