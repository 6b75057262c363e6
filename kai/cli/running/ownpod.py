"""What this process can learn from its own pod: the image, from which the pods that it makes for itself can run too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog

from kai.api.plans import Reason, Refusal
from kai.basics.deadlines import doubling_pause
from kai.cluster.requests import Fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai.cluster.port import Cluster

HOLD_GPU: Final = ("reserve",)
"""What a reservation pod runs when its image is ours."""
END_AT_ONCE: Final = ("version",)
"""What a scaling pod runs when its image is ours: all it has to do is to end."""


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_REFUSALS: Final = 5
"""So many in a row are believed, within 15 seconds: a server that has just started forbids what it allows later."""


async def own_image(cluster: Cluster, environment: Mapping[str, str]) -> str:
    """Return the image of the pod that this process runs in; empty outside of a pod, or where it may not be read.

    ``POD_NAME`` and ``POD_NAMESPACE`` say which pod that is. Terms begin when an API server is in trouble, so one that
    does not answer is asked until it does: without an image no shared GPU could be held for as long as the term lasts.
    """
    name, namespace = environment.get("POD_NAME", ""), environment.get("POD_NAMESPACE", "")
    if not name or not namespace:
        return ""
    refused = failures = 0
    while True:
        found: Any = await cluster.api.perform(Fetch(api_version="v1", kind="Pod", name=name, namespace=namespace))
        if not isinstance(found, Refusal):
            containers = found.get("spec", {}).get("containers") or [{}]
            return str(containers[0].get("image", ""))
        if not failures:
            structlog.get_logger().warning("own image unknown", pod=f"{namespace}/{name}", why=found.message)
        failures += 1
        refused = refused + 1 if found.reason is Reason.REJECTED else 0
        if refused == _REFUSALS or found.reason is Reason.NOT_FOUND:
            return ""
        await cluster.clock.sleep(max(found.retry_after or 0.0, doubling_pause(failures, _FIRST_PAUSE, _LONGEST_PAUSE)))
