"""Which devices a pod gets on a node."""

from typing import Any

from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.facts.model.axis import NodeRow
from kai.facts.model.placement import ClaimPlacement
from kai.intake import IntakeSettings
from kai.plugins.dra import Dra
from tests.unit.plugins.dra.manifests import NODE, claiming
from tests.unit.plugins.stage import Manifest, Stage, snapshot_of


def placed(*manifests: Manifest, claims: tuple[str, ...] = ("c",), node_row: int = 0, **parts: Any) -> Any:
    """Return what a pod with ``claims`` gets on a node, as `ClaimPlacement`; None if it gets nothing."""
    settings = IntakeSettings(kubernetes=parts.pop("kubernetes", NEWEST))
    stage = Stage.of(Dra(), snapshot_of(NODE, *manifests, claiming("a-0", *claims, **parts), settings=settings))
    filtered = stage.session.snapshot.nodes[node_row].name in stage.accepting("a-0")
    placement = stage.answers.placement.choose(stage.row("a-0"), NodeRow(node_row))
    assert (placement is not None) == filtered
    assert placement is None or isinstance(placement, ClaimPlacement)
    return placement


def chosen(
    *manifests: Manifest,
    claims: tuple[str, ...] = ("c",),
    node_row: int = 0,
    kubernetes: KubernetesVersion = NEWEST,
) -> list[tuple[str, str]] | None:
    """Return the devices that a pod with ``claims`` gets on a node, as (request, device); None if it gets none."""
    placement = placed(*manifests, claims=claims, node_row=node_row, kubernetes=kubernetes)
    return None if placement is None else [(each.request, each.device) for each in placement.devices()]
