"""The effect of other objects on pods: additions to shapes, the catalog, and objects for plugins.

Surroundings add to the shape of a pod, such as the GPUs of its resource claims.

The catalog holds the objects that filters look up by name.

Objects that plugins read are passed on as they are, by kind and in name order.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import attrs

from kai.api.cluster_objects import FIELD_OF, ClusterObjects
from kai.api.codec.structuring import unstructure
from kai.api.kinds import BY_CLASS, HANDED_ON, ApiObject, key_of
from kai.api.kubernetes.meta import Foreign
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.claim import Claim, RawObject
from kai.facts.model.partitions import Catalog
from kai.facts.state.memory import Memory
from kai.facts.state.table_version import TableVersion
from kai.intake.claims import ClaimedGpus, KnownClaims, Wanted, gpus_wanted, read_claims
from kai.intake.devices import Devices, are_same, read_devices
from kai.intake.nodes import Offered, offered_in
from kai.intake.pods import PodRecord
from kai.intake.record_cache import in_order
from kai.intake.settings import IntakeSettings
from kai.intake.traits import EVERYWHERE, OWN

_NAMED = ("namespaces",)
_SOURCES = (
    *_NAMED,
    "resource_slices",
    "config_maps",
    "resource_claims",
    "resource_claim_templates",
    "device_classes",
    "device_taint_rules",
)


@attrs.frozen(kw_only=True, eq=False)
class Library:
    """The catalog, and other results from the same objects."""

    objects: ClusterObjects
    catalog: Catalog
    devices: Devices
    claimed_gpus: ClaimedGpus
    templates: Mapping[tuple[str, str], Wanted]
    """The GPUs of a claim made from a template, by the template's namespace and name."""
    node_gpus: Mapping[str, Offered]
    """GPUs that DRA drivers offer beside device plugins, by node."""


def read_library(objects: ClusterObjects, settings: IntakeSettings, before: Library | None) -> Library:
    """Return the library of a cluster; ``before`` itself while it is made of the same objects."""
    before = before or _NOTHING
    if _are_same(objects, before.objects, _SOURCES):
        return before
    devices, claimed_gpus, node_gpus = before.devices, before.claimed_gpus, before.node_gpus
    # Claims that did not change keep their values: they are many, and each is read with its devices.
    read = zip(map(id, in_order(before.objects.resource_claims)), before.catalog.claims.claims.values(), strict=True)
    known: KnownClaims = dict(read)
    if (now := read_devices(objects, devices)) is not devices:
        claimed_gpus = ClaimedGpus(gpus=now.gpus, classes=now.classes)
        if devices.gpus.are_divided or now.gpus.are_divided:
            known = {}  # the parts of GPUs that claims get may have changed
        # Offers depend on these GPUs alone, so the same GPUs keep the same mapping.
        if now.gpus is not devices.gpus:
            node_gpus = offered_in(now.gpus)
        devices = now
    templates = {key_of(each): gpus_wanted(each.spec.spec, claimed_gpus) for each in objects.resource_claim_templates}
    return Library(
        objects=objects,
        catalog=Catalog(
            namespaces=_namespaces(objects, before),
            config_maps=frozenset(key_of(each) for each in objects.config_maps),
            config_maps_known=bool(objects.config_maps),  # with none in the cluster, they were not listed
            claims=read_claims(objects, settings, devices, claimed_gpus, known),
            gpus=devices.gpus,
        ),
        devices=devices,
        claimed_gpus=claimed_gpus,
        templates=templates,
        node_gpus=node_gpus,
    )


_NOTHING = Library(
    objects=ClusterObjects(),
    catalog=Catalog(),
    devices=Devices(objects=ClusterObjects()),
    claimed_gpus=ClaimedGpus(),
    templates={},
    node_gpus={},
)


def _are_same(objects: ClusterObjects, before: ClusterObjects, fields: Sequence[str]) -> bool:
    return all(are_same(getattr(objects, field), getattr(before, field)) for field in fields)


def _namespaces(objects: ClusterObjects, before: Library) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of namespaces; the same mapping while these are the same objects."""
    if _are_same(objects, before.objects, _NAMED):
        return before.catalog.namespaces
    return {each.metadata.name: each.metadata.labels for each in objects.namespaces}


Raws = Mapping[tuple[str, str], tuple[RawObject, ...]]

_METADATA: Final = "metadata"


def read_foreign(objects: ClusterObjects, memory: Memory) -> Raws:
    """Return the objects by apiVersion and kind; the same values for the same objects. Cost: O(1) if none changed.

    Raises: InputError for two objects of one kind and name.
    """
    listings: list[Sequence[ApiObject]] = [getattr(objects, FIELD_OF[cls]) for cls in HANDED_ON]
    listings.append(objects.foreign)
    return memory.once("foreign", tuple(listings), lambda: _by_kind(listings, memory))


def _by_kind(listings: Sequence[Sequence[ApiObject]], memory: Memory) -> Raws:
    out: dict[tuple[str, str], tuple[RawObject, ...]] = {}
    for at, listing in enumerate(listings):
        name = f"foreign {at}"
        # Plugins cache results of a kind by the identity of its tuple, so a change of one kind must not touch others.
        out.update(memory.once(f"{name} by kind", (listing,), partial(_of_listing, name, listing, memory)))
    return out


def _of_listing(name: str, listing: Sequence[ApiObject], memory: Memory) -> Raws:
    out: dict[tuple[str, str], list[RawObject]] = {}
    ordered = memory.once(name, (listing,), partial(_ordered, listing))
    for source, raw in zip(ordered, memory.each(name, ordered, raw_object), strict=True):
        kind = BY_CLASS[type(source)]
        out.setdefault((kind.api_version, kind.kind), []).append(raw)
    return {kind: tuple(found) for kind, found in out.items()}


def _ordered(listing: Sequence[ApiObject]) -> tuple[ApiObject, ...]:
    if listing and isinstance(listing[0], Foreign):  # of several kinds, so that two may share a name
        return tuple(sorted(listing, key=key_of))
    return tuple(in_order(listing))


def bind_requests(requests: Mapping[int, BindRequest], memory: Memory) -> Mapping[int, RawObject]:
    """Return live bind requests as plugins read them, by pod row; the same values for the same objects."""
    if not requests:
        return {}
    raws = memory.each("bind requests", tuple(requests.values()), raw_object)
    return dict(zip(requests, raws, strict=True))


def raw_object(source: ApiObject) -> RawObject:
    """Return an object as plugins read it."""
    metadata = source.metadata
    return RawObject(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        labels=metadata.labels,
        annotations=metadata.annotations,
        owners=tuple([(each.kind, each.uid) for each in metadata.owner_references]),
        deleting=metadata.deletion_timestamp is not None,
        # On demand: most plugins read names and labels, and to write out an object is dear.
        write=partial(_content, source),
    )


def _content(source: ApiObject) -> Mapping[str, Any]:
    if isinstance(source, Foreign):
        return {"spec": source.spec, "status": source.status}
    written: Mapping[str, Any] = unstructure(source)
    return {name: value for name, value in written.items() if name != _METADATA}


LabelKeys: TypeAlias = Mapping[str, frozenset[str]]
"""Label keys that terms look at, by namespace of the pods."""
ClaimUse: TypeAlias = tuple[tuple[str, str], str]
"""Namespace and name of a claim, and the key of the group whose pods refer to it."""
_NO_KEYS: Final = frozenset[str]()


@attrs.frozen
class Additions:
    """The additions of other objects to a pod's shape; the default adds nothing."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    missing_config_maps: tuple[str, ...] = ()
    claimed: int = 0
    """GPUs requested through resource claims."""
    not_had: int = 0
    """Thousandths of these that claims do not get, since they get parts of GPUs."""
    spared: int = 0
    """Thousandths of these that cost nothing: a pod that shares a claim needs no further device."""
    most_spared: int = 0
    """The same where claims get the smallest devices that serve them."""


NOTHING = Additions()
_NO_CLAIM: Final = Wanted(gpus=0)


@attrs.frozen(eq=False)
class Token:
    """Identifies one state of the surroundings: results that it tags are valid while it is the same."""


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Surroundings:
    """Everything besides the pods themselves that can affect the shapes of one snapshot."""

    records: Sequence[PodRecord]
    version: TableVersion
    library: Library
    label_keys: LabelKeys | None
    """Label keys that terms about other pods look at; None when no pod has such terms."""
    tokens: tuple[Token, ...]
    """One token for each value of ``References``."""
    first_users: Mapping[ClaimUse, str]
    """The pod that is charged for a claim, where several pods of a group refer to it and it is not allocated."""

    @property
    def are_silent(self) -> bool:
        """Whether nothing is added to the shape of a pod that refers to no other object."""
        return self.label_keys is None

    def of(self, record: PodRecord) -> Additions:
        """Return the additions of the surroundings to a pod's shape.

        Terms about other pods look at certain labels in certain namespaces. Only these labels distinguish pods, and
        only in these namespaces: any user may name any label.

        Cost: a look at each label of the pod, however many labels the terms name.
        """
        traits, pod, catalog = record.traits, record.pod, self.library.catalog
        missing: tuple[str, ...] = ()
        if traits.config_maps and catalog.config_maps_known:
            present = catalog.config_maps
            missing = tuple([name for name in traits.config_maps if (pod.namespace, name) not in present])
        labels: tuple[tuple[str, str], ...] = ()
        # Most clusters have no terms about other pods, and then labels split no shapes.
        if self.label_keys is not None and pod.labels:
            there, own = (self.label_keys.get(place, _NO_KEYS) for place in (EVERYWHERE, pod.namespace))
            labels = tuple(sorted([each for each in pod.labels.items() if each[0] in there or each[0] in own]))
        refers = missing or traits.constraints.claims or traits.constraints.volume_claims
        if refers or self.label_keys is not None:
            claims = self._claimed(record) if traits.constraints.claims else ()
            return Additions(pod.namespace, labels, missing, *claims)
        return NOTHING

    def _claimed(self, record: PodRecord) -> tuple[int, int, int, int]:
        """Return the GPUs in a pod's resource claims, and the thousandths of them that it does not get or pay for.

        A claim that does not exist yet counts by its template. A claim that the pod refers to twice counts once.
        """
        namespace, claims = record.pod.namespace, self.library.catalog.claims.claims
        templates = {each.name: each.resource_claim_template_name for each in record.source.spec.resource_claims}
        total = not_had = spared = most_spared = 0
        # By the claim and not by the reference; one that does not exist yet has only the name of its reference.
        distinct = {each.claim or each.name: each for each in record.traits.constraints.claims}
        for reference in distinct.values():
            claim = claims.get((namespace, reference.claim))
            if claim is None:
                wanted = self.library.templates.get((namespace, templates.get(reference.name) or ""), _NO_CLAIM)
                total += wanted.gpus
                not_had += wanted.not_had[0]
                spared += wanted.not_had[0]
                most_spared += wanted.not_had[1]
            elif claim.gpus:
                missing, whole = self.library.catalog.gpus.known_not_had(claim), claim.gpus * GPU_UNIT
                total += claim.gpus
                not_had += missing
                if self._is_charged_already(claim, record):
                    spared += whole
                    most_spared += whole
                else:
                    spared += missing
                    most_spared += missing if claim.allocation is not None else claim.not_had[1]
        return total, not_had, spared, most_spared

    def _is_charged_already(self, claim: Claim, record: PodRecord) -> bool:
        """Return whether another pod is charged for a claim of this one.

        Pods of a group that share a claim are charged once for it, whether or not it is allocated.
        """
        if claim.allocation is None:
            use = (claim.namespace, claim.name), record.pod.group or ""
            return self.first_users.get(use, record.pod.uid) != record.pod.uid
        return any(each != record.pod.uid and each in self._holders for each in claim.reserved_for)

    @cached_property
    def _holders(self) -> frozenset[str]:
        """The pods with claims that are charged to a queue: they have a group and a node, and are not ending."""
        return frozenset(
            record.pod.uid
            for record in self.records
            if record.traits.constraints.claims and record.pod.group and _goes_on(record.source)
        )


def _goes_on(pod: Pod) -> bool:
    ends = pod.status.phase in ENDED or pod.metadata.deletion_timestamp is not None
    return bool(pod.spec.node_name) and not ends


def surroundings_of(
    records: Sequence[PodRecord],
    version: TableVersion,
    selective: Iterable[PodRecord],
    library: Library,
    before: Surroundings | None,
) -> Surroundings:
    """Return the surroundings of ``records``, with those tokens of ``before`` whose state did not change.

    ``selective`` are the records with required or preferred terms about other pods.
    """
    is_still = before is not None and before.version is version and before.library.catalog is library.catalog
    first_users = before.first_users if before is not None and is_still else _first_users(records, library)
    label_keys = before.label_keys if before is not None and before.version is version else _label_keys(selective)
    # Each kind of references includes those before it: its token may stay only if theirs stay.
    tokens = [Token(), Token(), Token()]
    if before is not None and label_keys == before.label_keys:
        tokens[0] = before.tokens[0]
        ours, theirs = library.catalog, before.library.catalog
        if (ours.config_maps, ours.config_maps_known) == (theirs.config_maps, theirs.config_maps_known):
            tokens[1] = before.tokens[1]
            if ours is theirs and first_users == before.first_users:
                tokens[2] = before.tokens[2]
    return Surroundings(
        records=records,
        version=version,
        library=library,
        label_keys=label_keys,
        tokens=tuple(tokens),
        first_users=first_users,
    )


def _first_users(records: Iterable[PodRecord], library: Library) -> Mapping[ClaimUse, str]:
    """Return, for each group and each claim that is not allocated, the first pod that refers to it.

    Claims that were made for one pod are left out, as they have no other user.
    """
    claims = library.catalog.claims.claims
    open_claims = {key for key, each in claims.items() if each.gpus and each.allocation is None and not each.owner_pod}
    found: dict[ClaimUse, str] = {}
    for record in records if open_claims else ():
        for reference in record.traits.constraints.claims:
            key = record.pod.namespace, reference.claim
            if record.pod.group and key in open_claims:
                found.setdefault((key, record.pod.group), record.pod.uid)
    return found


def _label_keys(records: Iterable[PodRecord]) -> LabelKeys | None:
    looked_at = {(record.traits.term_labels, record.pod.namespace) for record in records}
    found: dict[str, set[str]] = {}
    for labels, namespace in looked_at:
        for place, key in labels or ():
            found.setdefault(namespace if place == OWN else place, set()).add(key)
    are_silent = all(labels is None for labels, _ in looked_at)
    return None if are_silent else {place: frozenset(keys) for place, keys in found.items()}
