"""The custom resource definitions of our six kinds, generated from the classes of `kai.api`.

``python -m kai.api.crds.definitions OUTDIR`` writes one YAML file for each kind; those in ``deploy/crds`` are written
by it, and a test fails when they differ from the classes. Types, bounds and patterns come from the annotations
(`kai.api.crds.openapi`); this module adds what an annotation cannot say: rules over several fields, short names,
printer columns.

Source: kinds, names, scopes, status subresources and the rules on topologies are the peer's; whatever its definitions
accept and a reader of either program understands is accepted here too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import yaml

from kai.api import names
from kai.api.conventions.caps import MOST_PARTS
from kai.api.crds.openapi import OPEN, Extras, Schema, description_of, schema_of
from kai.api.fields import name_on_the_wire
from kai.api.kinds import BY_CLASS, ApiObject, Kind
from kai.api.scheduling.bind_request import BindRequest, BindRequestSpec
from kai.api.scheduling.pod_group import (
    MOST_SUB_GROUPS,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    SchedulingCondition,
    SubGroup,
)
from kai.api.scheduling.queue import (
    MOST_BUDGETS,
    MOST_SCHEDULES,
    MOST_WEIGHTS,
    Queue,
    QueueBudget,
    QueueSpec,
    QueueStatus,
    Topology,
    TopologySpec,
)
from kai.api.scheduling.shard import Config, GlobalConfig, SchedulingShard, SchedulingShardSpec, UsageDbConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER: Final = "# Written by `python -m kai.api.crds.definitions`; edit the classes in kai/api instead.\n"
_LINE: Final = 120


@attrs.frozen(kw_only=True)
class Column:
    """A column that `kubectl get` prints; one with `wide` only when asked for more."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@attrs.frozen(kw_only=True)
class Presentation:
    """How a kind shows itself to people."""

    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()


def _rule(rule: str, message: str) -> dict[str, str]:
    return {"rule": rule, "message": message}


_ONE_MINIMUM: Final = [
    _rule("!(has(self.minMember) && has(self.minSubGroup))", "minMember and minSubGroup exclude each other"),
]
_HOSTNAME_LAST: Final = (
    f"!self.exists(level, level.nodeLabel == '{names.HOSTNAME}') || "
    f"self[size(self) - 1].nodeLabel == '{names.HOSTNAME}'"
)
_LEVELS: Final = {
    "minItems": 1,
    "maxItems": 16,
    "x-kubernetes-list-type": "atomic",
    "x-kubernetes-validations": [
        _rule(
            "self.map(level, level.nodeLabel) == oldSelf.map(level, level.nodeLabel)",
            "node labels and their order cannot be changed, only aliases can",
        ),
        _rule(
            "self.all(level, self.exists_one(other, other.nodeLabel == level.nodeLabel))",
            "a node label can be the label of one level only",
        ),
        _rule(_HOSTNAME_LAST, f"the label {names.HOSTNAME} can only be that of the last level"),
        _rule(
            "self.all(level, !has(level.alias) || "
            "self.exists_one(other, has(other.alias) && other.alias == level.alias))",
            "an alias can be that of one level only",
        ),
        _rule(
            "self.all(level, !has(level.alias) || !self.exists(other, other.nodeLabel == level.alias))",
            "an alias cannot be the node label of a level",
        ),
    ],
}

_SOME: Final = {"maxItems": MOST_PARTS}
"""Of lists that kai itself writes, and makes short."""

EXTRAS: Final[Extras] = {
    (QueueSpec, "schedules"): {
        "maxItems": MOST_SCHEDULES,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    (QueueSpec, "budgets"): {
        "maxItems": MOST_BUDGETS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    (QueueBudget, "weights"): {"maxItems": MOST_WEIGHTS, "x-kubernetes-list-type": "atomic"},
    (QueueBudget, "refund"): {"maxItems": 2, "x-kubernetes-list-type": "set"},
    (QueueStatus, "budgets"): _SOME,
    (PodGroupSpec, ""): {"x-kubernetes-validations": _ONE_MINIMUM},
    # Atomic, so that a group of thousands of sub-groups does not carry thousands of records of who owns which field.
    # How deep they are nested no rule can say within the cost that the API server allows a definition: a policy of
    # deploy/policies, the webhook and intake look.
    (PodGroupSpec, "subGroups"): {"maxItems": MOST_SUB_GROUPS, "x-kubernetes-list-type": "atomic"},
    (SubGroup, ""): {"x-kubernetes-validations": _ONE_MINIMUM},
    (PodGroupStatus, "conditions"): _SOME,
    (PodGroupStatus, "schedulingConditions"): _SOME,
    (SchedulingCondition, "reasons"): _SOME,
    (QueueStatus, "conditions"): _SOME,
    (BindRequestSpec, "selectedGPUGroups"): _SOME,
    (BindRequestSpec, "resourceClaimAllocations"): _SOME,
    (BindRequestSpec, "predictedNUMAZones"): _SOME,
    (Topology, ""): {"required": ["spec"]},
    (TopologySpec, ""): {"required": ["levels"]},
    (TopologySpec, "levels"): _LEVELS,
    (SchedulingShardSpec, "goMemLimitRatio"): {"minimum": 0, "exclusiveMinimum": True, "maximum": 1},
    (UsageDbConfig, ""): {"required": ["clientType"]},
    # The peer's operator has more settings here than we read.
    (GlobalConfig, ""): OPEN,
}

_GPU: Final = r"nvidia\.com/gpu"
_AGE: Final = Column(name="Age", path=".metadata.creationTimestamp", type="date")

PRESENTATIONS: Final[dict[type[ApiObject], Presentation]] = {
    Queue: Presentation(
        columns=(
            # The first four are the peer's: scripts may read them by position.
            Column(name="Priority", path=".spec.priority"),
            Column(name="Parent", path=".spec.parentQueue"),
            Column(name="Children", path=".status.childQueues"),
            Column(name="DisplayName", path=".spec.displayName"),
            Column(name="GPU-Quota", path=".spec.resources.gpu.quota", type="number"),
            Column(name="GPU-Fair-Share", path=f".status.fairShare.{_GPU}"),
            Column(name="GPU-Allocated", path=f".status.allocated.{_GPU}"),
            Column(name="GPU-Requested", path=f".status.requested.{_GPU}"),
            Column(name="GPU-Limit", path=".spec.resources.gpu.limit", type="number", wide=True),
            Column(name="CPU-Quota", path=".spec.resources.cpu.quota", type="number", wide=True),
            Column(name="CPU-Allocated", path=".status.allocated.cpu", wide=True),
            Column(name="Memory-Quota", path=".spec.resources.memory.quota", type="number", wide=True),
            Column(name="Memory-Allocated", path=".status.allocated.memory", wide=True),
            _AGE,
        ),
    ),
    PodGroup: Presentation(
        short_names=("pg",),
        columns=(
            Column(name="Queue", path=".spec.queue"),
            Column(name="Min", path=".spec.minMember", type="integer"),
            Column(name="Priority-Class", path=".spec.priorityClassName"),
            Column(name="GPU-Allocated", path=f".status.resourcesStatus.allocated.{_GPU}"),
            Column(name="GPU-Requested", path=f".status.resourcesStatus.requested.{_GPU}"),
            Column(name="Unschedulable", path=".status.schedulingConditions[-1:].reasons[0].reason"),
            Column(name="Message", path=".status.schedulingConditions[-1:].reasons[0].message", wide=True),
            _AGE,
        ),
    ),
    BindRequest: Presentation(
        columns=(
            Column(name="Pod", path=".spec.podName"),
            Column(name="Node", path=".spec.selectedNode"),
            Column(name="Type", path=".spec.receivedResourceType"),
            Column(name="Phase", path=".status.phase"),
            Column(name="Failed", path=".status.failedAttempts", type="integer"),
            Column(name="Reason", path=".status.reason", wide=True),
            _AGE,
        ),
    ),
    Topology: Presentation(
        columns=(
            Column(name="Widest", path=".spec.levels[0].nodeLabel"),
            Column(name="Narrowest", path=".spec.levels[-1:].nodeLabel"),
            _AGE,
        ),
    ),
    SchedulingShard: Presentation(
        columns=(
            Column(name="Partition", path=".spec.partitionLabelValue"),
            Column(name="GPU-Strategy", path=".spec.placementStrategy.gpu"),
            Column(name="CPU-Strategy", path=".spec.placementStrategy.cpu"),
            _AGE,
        ),
    ),
    Config: Presentation(columns=(Column(name="Namespace", path=".spec.namespace"), _AGE)),
}


def definition(cls: type[ApiObject]) -> dict[str, Any]:
    """Return the custom resource definition of a kind, as the manifest to apply."""
    kind = BY_CLASS[cls]
    shown = PRESENTATIONS[cls]
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(kind)},
        "additionalPrinterColumns": [_column(column) for column in shown.columns],
    }
    if any(name_on_the_wire(field) == "status" for field in attrs.fields(cls)):
        version["subresources"] = {"status": {}}
    kinds = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": kind.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}", "labels": {"app.kubernetes.io/part-of": "kai"}},
        "spec": {
            "group": kind.group,
            "names": {
                **kinds,
                **({"shortNames": list(shown.short_names)} if shown.short_names else {}),
                "categories": ["kai"],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _root(kind: Kind) -> Schema:
    """Return the schema of whole objects: the fields of their class, with the metadata that the API server checks."""
    schema = schema_of(kind.cls, EXTRAS)
    parts = {wire: part for wire, part in schema["properties"].items() if wire != "metadata"}
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {**schema, "description": description_of(kind.cls), "properties": {**head, **parts}}


def _column(column: Column) -> dict[str, Any]:
    more = {"priority": 1} if column.wide else {}
    return {"name": column.name, "type": column.type, "jsonPath": column.path, **more}


# --- Files ---------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out each time: an alias in a manifest is a puzzle for people and for some tools."""

    def ignore_aliases(self, data: object) -> bool:
        """Return that nothing is ever an alias."""
        return True


def file_name(cls: type[ApiObject]) -> str:
    """Return the name of the file that holds the definition of a kind."""
    kind = BY_CLASS[cls]
    return f"{kind.group}_{kind.plural}.yaml"


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        file_name(cls): _HEADER
        + yaml.dump(definition(cls), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_LINE)
        for cls in PRESENTATIONS
    }


def main(arguments: Sequence[str]) -> int:
    """Write the definitions into a folder; return the exit status of the program."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m kai.api.crds.definitions OUTDIR\n")
        return 2
    folder = Path(arguments[0])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files().items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"{folder}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
