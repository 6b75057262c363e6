"""Nodes as plain values, for documents."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kai.simulation.slots import NodeSlots


def node_values(node: "NodeSlots") -> dict[str, Any]:
    """Return one node with its GPUs as plain values."""
    return {
        "name": node.name,
        "labels": dict(node.labels),
        "gpuType": node.product or None,
        "ready": node.ready,
        "gpus": [
            {
                "index": at,
                "uuid": None,
                "free": (1000 - slot.granted) / 1000 if slot.state in {"free", "shared"} else 0.0,
                "state": slot.state,
                "users": [
                    {
                        "job": user.job,
                        "namespace": user.namespace,
                        "queue": user.queue or None,
                        "pod": user.pod,
                        "share": user.share / 1000,
                        "state": user.state,
                    }
                    for user in slot.users
                ],
            }
            for at, slot in enumerate(node.slots)
        ],
        "free": {"whole": node.free, "fractions": round(node.fractions, 3)},
        "domains": dict(node.domains),
    }
