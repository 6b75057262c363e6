"""What kai says and to whom: events, conditions and log lines are true, keep secrets, and name no foreign objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec

from tests.doubles.rest_server.kinds import BY_KIND
from tests.simulation.users import CANARY
from tests.simulation.world import GROUP, HOMES, ORDER, POD, World, key_of, node_of

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Change, Manifest

EVENT = BY_KIND["v1", "Event"]
_DONE = frozenset({"Scheduled", "Bound"})
_FAILED = "FailedBinding"
_ASKED_AGAIN = 46.0
"""Seconds after which a process has asked again for a kind that was not served."""


@attrs.define(eq=False)
class Words:
    """Looks at what kai writes for people."""

    world: World
    came: dict[str, float] = attrs.field(factory=dict)
    """When each bind request was there first, by UID."""

    def __attrs_post_init__(self) -> None:
        self.world.server.storage.listeners.append(self.see)

    def see(self, change: Change) -> None:
        """Look at a change."""
        if change.served is ORDER and change.before is None:
            self.came[change.present["metadata"]["uid"]] = self.world.time
        if change.after is None or not change.by.startswith("kai"):
            return
        if change.served is EVENT:
            self._look_at_event(change.after)
        elif change.served is ORDER:
            self._look_at_order(change.after)
        elif change.served is GROUP:
            self._look_at_text(change.after, msgspec.json.encode(change.after.get("status") or {}).decode())
        elif change.served is POD:
            self._look_at_pod(change)

    def hear(self, line: str) -> None:
        """Look at a line of the log."""
        if CANARY in line:
            self.world.violate(29, "the log has what was in the environment of a pod")

    def _look_at_event(self, event: Manifest) -> None:
        regarding = event.get("involvedObject") or event.get("regarding") or {}
        text = str(event.get("message") or event.get("note") or "")
        self._look_at_text(event, f"{text} {event['metadata'].get('annotations') or {}}")
        place = (regarding.get("namespace", ""), regarding.get("name", ""))
        pod = self.world.server.storage.get(POD, place)
        if event.get("reason") == _FAILED and pod is not None and pod["metadata"]["uid"] == regarding.get("uid"):
            said = self.world.failures_said.get(event["metadata"]["name"], self.world.time)
            self._look_at_failure(pod, min(said, self.world.orders_refused.get(key_of(pod), said)))
        if event.get("reason") not in _DONE or regarding.get("kind") != "Pod":
            return
        if pod is None or pod["metadata"]["uid"] != regarding.get("uid") or node_of(pod):
            return
        if pod["metadata"]["uid"] in self.world.undone:
            return
        self.world.violate(27, f"an event says {event['reason']} of {key_of(pod)}, which is on no node")

    def _look_at_failure(self, pod: Manifest, said: float) -> None:
        """Look whether a bind request was refused, as the scheduler says: one that is there will be carried out."""
        metadata = pod["metadata"]
        order = self.world.server.storage.get(ORDER, (metadata["namespace"], metadata["name"]))
        owners = {each["uid"] for each in (order or {"metadata": {}})["metadata"].get("ownerReferences") or ()}
        came = float("inf") if order is None else self.came.get(order["metadata"]["uid"], 0.0)
        is_served = came <= said and self.world.wire.unserved != ORDER.plural  # else no process can see it
        is_served = is_served and self.world.time > self.world.orders_hidden + _ASKED_AGAIN
        if (
            is_served
            and order is not None
            and metadata["uid"] in owners
            and not (order.get("status") or {}).get("phase")
        ):
            self.world.violate(27, f"an event says {_FAILED} of {key_of(pod)}, and its bind request is there")

    def _look_at_order(self, order: Manifest) -> None:
        if (order.get("status") or {}).get("phase") != "Succeeded":
            return
        namespace = order["metadata"]["namespace"]
        pod = self.world.server.storage.get(POD, (namespace, order["spec"]["podName"]))
        owners = {each["uid"] for each in order["metadata"].get("ownerReferences") or ()}
        is_undone = pod is not None and pod["metadata"]["uid"] in self.world.undone
        if pod is not None and pod["metadata"]["uid"] in owners and not node_of(pod) and not is_undone:
            self.world.violate(27, f"bind request {key_of(order)} says that it succeeded, and its pod is on no node")

    def _look_at_pod(self, change: Change) -> None:
        pod = change.after
        assert pod is not None
        scheduler = pod["spec"].get("schedulerName")
        if change.before is not None and scheduler == "other":
            self.world.violate(28, f"{change.by} writes pod {key_of(pod)}, which is of another scheduler")
        old = (change.before or {}).get("status")
        if pod.get("status") != old:
            self._look_at_text(pod, msgspec.json.encode(pod.get("status") or {}).decode())

    def _look_at_text(self, about: Manifest, text: str) -> None:
        """Look whether a text in a namespace names what is in another, or gives secrets away."""
        if CANARY in text:
            self.world.violate(29, f"{key_of(about)} shows what was in the environment of a pod")
        namespace = about["metadata"].get("namespace", "")
        for served in (POD, GROUP):
            for other in self.world.all(served):
                metadata = other["metadata"]
                if namespace in HOMES and metadata["namespace"] in HOMES - {namespace} and metadata["name"] in text:
                    self.world.violate(30, f"{key_of(about)} names {key_of(other)}: {text[:200]}")
                    return
