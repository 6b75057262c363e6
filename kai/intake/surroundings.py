"""What the other objects of a cluster mean for a pod: what they add to its shape."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import attrs

from kai.api.kubernetes.pod import ENDED, Pod
from kai.intake.catalog import Library
from kai.intake.claimed_gpus import Wanted
from kai.intake.pods import PodRecord
from kai.intake.traits import EVERYWHERE, OWN
from kai.model.axis import GPU_UNIT
from kai.model.claim import Claim
from kai.state.table_version import TableVersion

LabelKeys: TypeAlias = Mapping[str, frozenset[str]]
"""Keys of labels by the namespace in which they are looked at."""
ClaimUse: TypeAlias = tuple[tuple[str, str], str]
"""Namespace and name of a claim, and the key of the group whose pods refer to it."""
_NO_KEYS: Final = frozenset[str]()


@attrs.frozen
class Additions:
    """What objects around a pod add to its shape; the default adds nothing."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    missing_config_maps: tuple[str, ...] = ()
    claimed: int = 0
    """GPUs asked for through resource claims."""
    not_had: int = 0
    """Thousandths of these that claims do without, as they have parts of GPUs."""
    spared: int = 0
    """Thousandths of these that cost nothing: a pod that joins others needs no further device."""
    most_spared: int = 0
    """The same where claims get the smallest devices that serve them."""


NOTHING = Additions()
_NO_CLAIM: Final = Wanted(gpus=0)


@attrs.frozen(eq=False)
class Token:
    """Stands for one state of the surroundings: what was worked out under it holds as long as it is the same."""


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Surroundings:
    """What can matter to the pods of one snapshot besides the pods themselves."""

    records: Sequence[PodRecord]
    version: TableVersion
    library: Library
    label_keys: LabelKeys | None
    """Labels that demands and wishes about other pods look at; None when no pod has any."""
    tokens: tuple[Token, ...]
    """For pods by their ``References``."""
    first_users: Mapping[ClaimUse, str]
    """The pod of a group that is charged for a claim which is not allocated and which several of them refer to."""

    @property
    def are_silent(self) -> bool:
        """Whether nothing is added to the shape of a pod that refers to no other object."""
        return self.label_keys is None

    def of(self, record: PodRecord) -> Additions:
        """Return what the surroundings add to the shape of a pod.

        Demands about other pods look at namespaces and at the labels that they name. Only those tell pods apart, in the
        namespaces that they are about alone: any user may name any label.

        Cost: a look at each label of the pod, however many labels demands name.
        """
        traits, pod, catalog = record.traits, record.pod, self.library.catalog
        missing: tuple[str, ...] = ()
        if traits.config_maps and catalog.config_maps_known:
            present = catalog.config_maps
            missing = tuple([name for name in traits.config_maps if (pod.namespace, name) not in present])
        labels: tuple[tuple[str, str], ...] = ()
        if self.label_keys is not None and pod.labels:
            there, own = (self.label_keys.get(place, _NO_KEYS) for place in (EVERYWHERE, pod.namespace))
            labels = tuple(sorted([each for each in pod.labels.items() if each[0] in there or each[0] in own]))
        refers = missing or traits.constraints.claims or traits.constraints.volume_claims
        if refers or self.label_keys is not None:
            claims = self._claimed(record) if traits.constraints.claims else ()
            return Additions(pod.namespace, labels, missing, *claims)
        return NOTHING

    def _claimed(self, record: PodRecord) -> tuple[int, int, int, int]:
        """Return the GPUs in a pod's resource claims, and how many thousandths of them are not had and cost nothing.

        A claim that is still to be made counts by its template. One that the pod refers to twice counts once.
        """
        namespace, claims = record.pod.namespace, self.library.catalog.claims.claims
        templates = {each.name: each.resource_claim_template_name for each in record.source.spec.resource_claims}
        total = not_had = spared = most_spared = 0
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
        """Return whether another pod is charged for the claim of this one.

        Pods of a group that share a claim are charged once for it, be it allocated or not.
        """
        if claim.allocation is None:
            use = (claim.namespace, claim.name), record.pod.group or ""
            return self.first_users.get(use, record.pod.uid) != record.pod.uid
        return any(each != record.pod.uid and each in self._holders for each in claim.reserved_for)

    @cached_property
    def _holders(self) -> frozenset[str]:
        """The pods that use claims and are charged to a queue: they have a group and a node, and go on."""
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
    """Return the surroundings of ``records``, with the tokens of ``before`` where nothing that they stand for changed.

    ``selective`` are those of them with demands or wishes about other pods.
    """
    is_still = before is not None and before.version is version and before.library.catalog is library.catalog
    first_users = before.first_users if before is not None and is_still else _first_users(records, library)
    label_keys = before.label_keys if before is not None and before.version is version else _label_keys(selective)
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
    """Return of each group and each claim that is not allocated the first pod that refers to it.

    Claims that were made for one pod have no other user.
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
