"""What the other objects of a cluster mean for a pod: what they add to its shape."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import attrs

from kai.api.kubernetes.pod import ENDED, Pod
from kai.intake.catalog import Library
from kai.intake.claims import parts_of_claim
from kai.intake.pods import PodRecord
from kai.intake.traits import EVERYWHERE, OWN
from kai.model.axis import GPU_UNIT
from kai.model.claim import Claim
from kai.state.table_version import TableVersion

LabelKeys: TypeAlias = Mapping[str, frozenset[str]]
"""Keys of labels by the namespace in which they are looked at."""
_NO_KEYS: Final = frozenset[str]()


@attrs.frozen
class Additions:
    """What objects around a pod add to its shape; the default adds nothing."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    missing_config_maps: tuple[str, ...] = ()
    claimed: int = 0
    """GPUs asked for through resource claims."""
    spared: int = 0
    """Thousandths of these that cost nothing: a pod that joins others needs no further device."""


NOTHING = Additions()


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
            claimed, spared = self._claimed(record) if traits.constraints.claims else (0, 0)
            return Additions(pod.namespace, labels, missing, claimed, spared)
        return NOTHING

    def _claimed(self, record: PodRecord) -> tuple[int, int]:
        """Return the GPUs in a pod's resource claims, and how many thousandths of them cost its queue nothing.

        A claim that is still to be made counts by its template. One that the pod refers to twice counts once.
        """
        namespace, claims = record.pod.namespace, self.library.catalog.claims.claims
        templates = {each.name: each.resource_claim_template_name for each in record.source.spec.resource_claims}
        total = spared = 0
        distinct = {each.claim or each.name: each for each in record.traits.constraints.claims}
        for reference in distinct.values():
            claim = claims.get((namespace, reference.claim))
            template = templates.get(reference.name) or ""
            total += claim.gpus if claim else self.library.template_gpus.get((namespace, template), 0)
            if claim is not None and claim.gpus:
                spared += min(claim.gpus * GPU_UNIT, self._spared(claim, record.pod.uid))
        return total, spared

    def _spared(self, claim: Claim, uid: str) -> int:
        """Return how many thousandths of GPUs a claim does not cost when this pod gets it."""
        if claim.allocation is None:
            return parts_of_claim(claim, self.library.catalog.claims.slices)
        return claim.gpus * GPU_UNIT if any(each != uid and each in self._holders for each in claim.reserved_for) else 0

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
    label_keys = before.label_keys if before is not None and before.version is version else _label_keys(selective)
    tokens = [Token(), Token(), Token()]
    if before is not None and label_keys == before.label_keys:
        tokens[0] = before.tokens[0]
        ours, theirs = library.catalog, before.library.catalog
        if (ours.config_maps, ours.config_maps_known) == (theirs.config_maps, theirs.config_maps_known):
            tokens[1] = before.tokens[1]
            if ours is theirs:
                tokens[2] = before.tokens[2]
    return Surroundings(
        records=records,
        version=version,
        library=library,
        label_keys=label_keys,
        tokens=tuple(tokens),
    )


def _label_keys(records: Iterable[PodRecord]) -> LabelKeys | None:
    looked_at = {(record.traits.term_labels, record.pod.namespace) for record in records}
    found: dict[str, set[str]] = {}
    for labels, namespace in looked_at:
        for place, key in labels or ():
            found.setdefault(namespace if place == OWN else place, set()).add(key)
    are_silent = all(labels is None for labels, _ in looked_at)
    return None if are_silent else {place: frozenset(keys) for place, keys in found.items()}
