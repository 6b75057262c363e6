"""What many kinds share: object metadata, owner references, label selectors, conditions."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Count64, Labels, Time, Word, by_content, shared

SelectorOperator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist"]


@attrs.frozen(kw_only=True, weakref_slot=False)
class OwnerReference:
    """The object that an object belongs to, and with which it is garbage-collected."""

    api_version: Word = ""
    kind: Word = ""
    name: Word = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class ObjectMeta:
    """The part of `metadata` that a module of kai reads or writes."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Count64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: Labels = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    annotations: Labels = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    owner_references: tuple[OwnerReference, ...] = attrs.field(default=(), metadata=shared())
    finalizers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class LabelSelectorRequirement:
    """One condition on one label."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class LabelSelector:
    """A conjunction over labels; an empty selector selects everything, an absent one (None) nothing."""

    match_labels: Labels = attrs.field(default=EMPTY, eq=by_content)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class Condition:
    """A condition in the status of a pod, node, queue or other object."""

    type: Word = ""
    status: Word = ""
    reason: Word = ""
    message: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    observed_generation: Count64 = 0
