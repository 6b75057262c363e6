"""What a process reads from its own pod: the image, which the pods that it creates can run too."""

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
"""The arguments of a reservation pod that runs kai's image."""
END_AT_ONCE: Final = ("version",)
"""The arguments of a scaling pod that runs kai's image: all it has to do is to end."""


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_REFUSALS: Final = 5
"""Accept a refusal after this many in a row, within 15 seconds: a starting server may forbid what it allows later."""


async def own_image(cluster: Cluster, environment: Mapping[str, str]) -> str:
    """Return the image of the pod that this process runs in; "" outside of a pod, or where it may not be read.

    ``POD_NAME`` and ``POD_NAMESPACE`` name that pod. Terms begin when an API server is in trouble, so requests are
    retried until it answers: without an image no shared GPU could be held for the whole term.
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
