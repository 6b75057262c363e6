"""What this process can learn from its own pod: the image, from which the pods that it makes for itself can run too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from kai.api.plans import Refusal
from kai.cluster.port import Cluster
from kai.cluster.requests import Fetch

HOLD_GPU: Final = ("reserve",)
"""What a reservation pod runs when its image is ours."""
END_AT_ONCE: Final = ("version",)
"""What a scaling pod runs when its image is ours: all it has to do is to end."""


async def own_image(cluster: Cluster, environment: Mapping[str, str]) -> str:
    """Return the image of the pod that this process runs in; empty outside of a pod, or where it cannot be read.

    ``POD_NAME`` and ``POD_NAMESPACE`` say which pod that is.
    """
    name, namespace = environment.get("POD_NAME", ""), environment.get("POD_NAMESPACE", "")
    if not name or not namespace:
        return ""
    found: Any = await cluster.api.perform(Fetch(api_version="v1", kind="Pod", name=name, namespace=namespace))
    if isinstance(found, Refusal):
        structlog.get_logger().warning("own image unknown", pod=f"{namespace}/{name}", why=found.message)
        return ""
    containers = found.get("spec", {}).get("containers") or [{}]
    return str(containers[0].get("image", ""))
