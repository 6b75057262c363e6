"""The rules that nearly every grouper starts from: name, owner, labels, queue, priority, delays, topology.

``standard_draft`` is one group for a whole workload that starts with any one pod. Groupers take it and change the rules
that differ for their kind. Labels and annotations count in this order: owners from the nearest to the farthest, then
the pod; an invalid value is ignored with a note.

``top_owner_text`` is the annotation that identifies the workload of a group.

Default priority class and preemptibility by workload kind come from a ConfigMap. Its key ``types`` holds a JSON list of
``{typeName, group, priorityName, preemptibility}``. Without a readable ConfigMap there are no defaults,
only a note: workloads are grouped all the same.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from kai.api import names
from kai.api.conventions.caps import APPLIED, few
from kai.api.conventions.runtime_limits import owner_deadline
from kai.api.scheduling.pod_group import name_after
from kai.api.values import duration_text, nanoseconds
from kai.basics.errors import InputError
from kai.roles.podgrouper.grouper import CONFIG_MAP, PRIORITY_CLASS, GroupDraft, Request, Settings, Topology
from kai.roles.podgrouper.lookup import Absent, Get, Reader
from kai.roles.podgrouper.resource import Kind, Resource, spec_text

_PLAIN = re.compile(r"[A-Za-z0-9]+(?:[-./][A-Za-z0-9]+)*", re.ASCII)
# Words of YAML 1.1, which Go's library reads and quotes in the same way: `no` is false there.
_WORDS_OF_OTHER_TYPES = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_LIKE_NUMBER_OR_DATE = re.compile(
    r"[-+.0-9]+(?:[eE][-+]?[0-9]*)?|0[xob][0-9a-fA-F]*|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*", re.ASCII
)


def top_owner_text(owner: Resource) -> str:
    """Return name, uid, group, version and kind of ``owner`` as YAML, byte for byte as the peer writes them."""
    kind = owner.kind
    # With equal bytes, taking over from the peer, or handing back to it, rewrites no group.
    fields = {"name": owner.name, "uid": owner.uid, "group": kind.group, "version": kind.version, "kind": kind.kind}
    return "".join(f"{key}: {_scalar(value)}\n" for key, value in fields.items())


def _scalar(text: str) -> str:
    """Return a YAML scalar that is parsed as the string ``text``; it is quoted in case of doubt."""
    is_plain = (
        _PLAIN.fullmatch(text)
        and text.lower() not in _WORDS_OF_OTHER_TYPES
        and not _LIKE_NUMBER_OR_DATE.fullmatch(text)
    )
    return text if is_plain else json.dumps(text)


_TYPES = "types"
_FIELDS = ("typename", "group", "priorityname", "preemptibility")


@attrs.frozen
class KindDefaults:
    """Defaults of one kind; an empty string is no default."""

    priority_class: str
    preemptibility: str


@attrs.frozen
class DefaultsByKind:
    """Defaults by ``Kind.group``, or by ``Kind`` alone for the kind in every group."""

    by_kind: Mapping[str, KindDefaults] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, kind: Kind) -> KindDefaults | None:
        """Return the defaults of ``kind``, by group and name, else by name."""
        if not kind.kind:
            return None
        return self.by_kind.get(_key(kind.kind, kind.group)) or self.by_kind.get(kind.kind)


def read_defaults(reader: Reader, settings: Settings) -> DefaultsByKind:
    """Return the defaults of the ConfigMap that ``settings`` name; none if they name no ConfigMap.

    Source: the peer's default grouper; a later entry for the same kind replaces an earlier one.
    """
    if not settings.defaults_name or not settings.defaults_namespace:
        return DefaultsByKind()
    read = Get(CONFIG_MAP, settings.defaults_namespace, settings.defaults_name)
    found = reader.get(read)
    if isinstance(found, Absent):
        return DefaultsByKind(notes=(f"defaults by kind: {read}: {found}",))
    return _parse(found)


def _parse(config_map: Resource) -> DefaultsByKind:
    data = config_map.manifest.get("data")
    text = data.get(_TYPES) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return DefaultsByKind(
            notes=(f"{config_map}: data.{_TYPES}: found nothing, expected a JSON list of defaults by kind",)
        )
    wrong = (f"{config_map}: data.{_TYPES}: found no JSON list of objects with text fields, so no kind has defaults",)
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return DefaultsByKind(notes=wrong)
    if not isinstance(entries, list):
        # Go decodes null into an empty list and reports no error.
        return DefaultsByKind(notes=() if entries is None else wrong)
    by_kind = {}
    for entry in entries:
        if not isinstance(entry, dict):
            return DefaultsByKind(notes=wrong)
        fields = {key.lower(): value for key, value in entry.items()}  # Go matches JSON keys without regard to case
        values = [fields.get(name) or "" for name in _FIELDS]
        if not all(isinstance(value, str) for value in values):
            return DefaultsByKind(notes=wrong)
        kind, group, priority, preemptibility = values
        by_kind[_key(kind, group)] = KindDefaults(priority, preemptibility)
    return DefaultsByKind(by_kind)


def _key(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind


BUILD, TRAIN, INFERENCE = "build", "train", "inference"
"""Priority classes of interactive work, of batch work, and of services."""

PREEMPTIBILITIES = (names.PREEMPTIBLE, names.NON_PREEMPTIBLE, "")
"""The valid values; the empty one means that the priority decides."""

_SECOND = 10**9


@attrs.frozen
class _Resolved:
    value: str
    notes: tuple[str, ...] = ()


def standard_draft(
    request: Request, owner: Resource, owners: Sequence[Resource] = (), *, fallback: str = TRAIN
) -> GroupDraft:
    """Return the group that ``owner`` and the pod describe by labels and annotations.

    The labels of ``owners``, in order, count for priority, preemptibility and delays; those of ``owner`` alone if
    ``owners`` is empty. ``fallback`` is the priority class if no other is named; it need not exist.
    Source: the peer's default grouper.
    """
    owners = owners or (owner,)
    pod = request.pod
    priority = priority_class(request, owners, fallback)
    preemptibility = _preemptibility(request, owners)
    delay = _duration(owners, pod, names.PREEMPTION_DELAY, lowest=0)
    grace = _duration(owners, pod, names.STALENESS_GRACE_PERIOD, lowest=None)
    return GroupDraft(
        name=group_name(owner),
        namespace=pod.namespace,
        owner=owner.reference,
        labels=group_labels(owner, pod),
        annotations=group_annotations(owner, pod),
        queue=queue(request, owner),
        priority_class=priority.value,
        preemptibility=preemptibility.value,
        preemption_delay=delay.value or None,
        staleness_grace_period=grace.value or None,
        topology=topology_of(owner.annotations),
        notes=priority.notes + preemptibility.notes + delay.notes + grace.notes,
    )


def group_name(owner: Resource) -> str:
    """Return the name of the group of ``owner``."""
    return name_after(owner.name, owner.uid)


def group_labels(owner: Resource, pod: Resource) -> Mapping[str, str]:
    """Return the labels of ``owner``, with the pod's user by default; of too many, only labels that kai reads."""
    user = {names.USER: pod.labels[names.USER]} if names.USER in pod.labels else {}
    return few({**user, **owner.labels}, {})[0]


def group_annotations(owner: Resource, pod: Resource) -> Mapping[str, str]:
    """Return the top owner as text, its deadline and the pod's user, overridden by the annotations of ``owner``.

    Beyond the cap of a pod group, only annotations that kai reads are kept.
    """
    user = {names.USER: pod.annotations[names.USER]} if names.USER in pod.annotations else {}
    # Without the annotation of `kubectl apply`: it is the whole manifest of the owner, environment included, and more
    # accounts may read pod groups than that.
    own = {key: text for key, text in owner.annotations.items() if key not in {APPLIED, names.OWNER_DEADLINE}}
    deadline = owner_deadline(owner.manifest)
    ends = {names.OWNER_DEADLINE: deadline} if deadline else {}
    return few({}, {**user, names.TOP_OWNER: top_owner_text(owner), **ends, **own})[1]


def topology_of(annotations: Mapping[str, str]) -> Topology:
    """Return the topology constraint in annotations."""
    return Topology(
        annotations.get(names.TOPOLOGY, ""),
        annotations.get(names.TOPOLOGY_REQUIRED, ""),
        annotations.get(names.TOPOLOGY_PREFERRED, ""),
    )


def queue(request: Request, owner: Resource) -> str:
    """Return the queue: by queue label, else by project (and node pool), else the default queue."""
    pod, settings = request.pod, request.settings
    for labels in (owner.labels, pod.labels):
        if settings.queue_label in labels:
            return labels[settings.queue_label]
    project = owner.labels.get(names.PROJECT, pod.labels.get(names.PROJECT, ""))
    if not project:
        return names.DEFAULT_QUEUE
    pool = pod.labels.get(settings.node_pool_label)
    return project if pool is None else f"{project}-{pool}"


def priority_class(request: Request, owners: Iterable[Resource], fallback: str) -> _Resolved:
    """Return the first priority class that exists: by labels and the pod's own, then by the defaults of the kind.

    For each owner, its label precedes the pod's label and ``spec.priorityClassName``. The pod's are thus tried again
    for every owner; that matters only where a nearer owner names a class that does not exist.
    """
    notes: list[str] = []
    # Each class once and in order: a note on one that does not exist must not come twice.
    for named in dict.fromkeys(_named_priorities(owners, request.pod)):
        if class_exists(named, request.reader):
            return _Resolved(named, tuple(notes))
        notes.append(f'priority class "{named}" does not exist and is passed over')
    defaults = read_defaults(request.reader, request.settings)
    notes += defaults.notes
    for owner in owners:
        entry = defaults.of(owner.kind)
        if entry is not None and class_exists(entry.priority_class, request.reader):
            return _Resolved(entry.priority_class, tuple(notes))
    return _Resolved(fallback, tuple(notes))


def class_exists(name: str, reader: Reader) -> bool:
    """Return whether there is a PriorityClass called ``name``; an empty name never exists."""
    return bool(name) and not isinstance(reader.get(Get(PRIORITY_CLASS, "", name)), Absent)


def _named_priorities(owners: Iterable[Resource], pod: Resource) -> Iterator[str]:
    of_pod = pod.labels.get(names.PRIORITY_CLASS, spec_text(pod, "priorityClassName"))
    for owner in owners:
        named = owner.labels.get(names.PRIORITY_CLASS, of_pod)
        if named:
            yield named


def _preemptibility(request: Request, owners: Sequence[Resource]) -> _Resolved:
    notes: list[str] = []
    for holder in (*owners, request.pod):
        label = holder.labels.get(names.PREEMPTIBILITY)
        if label in PREEMPTIBILITIES:
            return _Resolved(label, tuple(notes))
        if label is not None:
            notes.append(_passed_over(holder, "labels", names.PREEMPTIBILITY, label))
    found = _default_preemptibility(read_defaults(request.reader, request.settings), owners)
    return _Resolved(found.value, (*notes, *found.notes))


def _default_preemptibility(defaults: DefaultsByKind, owners: Iterable[Resource]) -> _Resolved:
    notes: list[str] = []
    for owner in owners:
        entry = defaults.of(owner.kind)
        if entry is None or not entry.preemptibility:
            continue
        value = entry.preemptibility.lower()
        if value in PREEMPTIBILITIES:
            return _Resolved(value, tuple(notes))
        notes.append(
            f'defaults of {owner.kind.kind}: preemptibility "{entry.preemptibility}" is unknown and passed over'
        )
    return _Resolved("", tuple(notes))


def parse_delay(text: str, *, lowest: int | None) -> str | None:
    """Return a Go duration in its normal form; None if it is invalid or below ``lowest`` nanoseconds.

    Days and weeks, which kai's configuration allows and Go does not, are invalid: the peer would refuse them.
    """
    try:
        found = nanoseconds(text)
    except InputError:
        return None
    if set("dw") & set(text) or (lowest is not None and found < lowest):
        return None
    return duration_text(found / _SECOND)


def _duration(owners: Iterable[Resource], pod: Resource, key: str, *, lowest: int | None) -> _Resolved:
    notes: list[str] = []
    for holder in (*owners, pod):
        text = holder.annotations.get(key)
        if text is None:
            continue
        delay = parse_delay(text, lowest=lowest)
        if delay is not None:
            return _Resolved(delay, tuple(notes))
        notes.append(_passed_over(holder, "annotations", key, text))
    return _Resolved("", tuple(notes))


def _passed_over(holder: Resource, part: str, key: str, value: str) -> str:
    return f'{holder}: metadata.{part}["{key}"]: "{value}" is not valid and passed over'
