"""Bind requests as JSON, filled into templates: what many have in common was written for the first of them.

Thousands of orders of a cycle differ in a name, a UID and a node. The parts for each node, for each namespace and for
what pods receive are kept as text; an order is then a handful of look-ups and one joining of strings.
"""

from __future__ import annotations

from json.encoder import encode_basestring as quoted
from typing import Final

import attrs

from kai.api import names
from kai.api.codec.encoded import Printed
from kai.api.codec.structuring import unstructure
from kai.api.kinds import BY_CLASS
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Create, Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.transport.encoding import to_json
from kai.framework.decisions import Bind
from kai.scheduler import orders
from kai.scheduler.orders import BLANK, Stamp
from kai.scheduler.settings import SchedulerSettings

_KIND: Final = BY_CLASS[BindRequest]
_HEAD: Final = f'{{"apiVersion":"{_KIND.api_version}","kind":"{_KIND.kind}","metadata":{{"name":'
_OWNER: Final = ',"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":'
_UID: Final = ',"uid":'
_SPEC: Final = '}]},"spec":{"podName":'
_MOST_PARTS: Final = 1 << 17
"""Parts that are kept: more than the nodes of a large cluster, times what pods receive."""


@attrs.define
class BindTemplates:
    """Writes bind requests of one scheduler."""

    settings: SchedulerSettings
    _places: dict[str, str] = attrs.field(factory=dict)
    """By namespace."""
    _nodes: dict[tuple[str, str, int, float], tuple[str, str]] = attrs.field(factory=dict)
    """Labels and the end of the specification, by node and what is received there."""

    def create(
        self, decision: Bind, pod: Pod, node: str, devices: tuple[str, ...] = (), stamp: Stamp = BLANK
    ) -> Create:
        """Return the write of the order that ``orders.bind_request`` returns."""
        text = self.text(decision, pod, node, devices, stamp)
        if text is None:
            return orders.create_bind_request(orders.bind_request(decision, pod, node, devices, self.settings, stamp))
        ref = Ref(BindRequest, pod.metadata.name, pod.metadata.namespace)
        return Create(ref=ref, manifest=Printed(text, _KIND.api_version))

    def text(
        self, decision: Bind, pod: Pod, node: str, devices: tuple[str, ...] = (), stamp: Stamp = BLANK
    ) -> bytes | None:
        """Return the order as it is sent; None for one that has more to it than templates have room for.

        Cost: about a microsecond, a tenth of the way through the object.
        """
        metadata = pod.metadata
        namespace, uid = metadata.namespace, metadata.uid
        if decision.request or not (decision.received and namespace and uid):
            return None
        place = self._places.get(namespace) or self._place(namespace)
        kind = (node, decision.received, decision.gpu_count, decision.gpu_portion)
        labels, end = self._nodes.get(kind) or self._node(*kind)
        if stamp is not BLANK:
            labels += _notes(stamp)
        if devices:
            end += f',"selectedGPUGroups":[{",".join(map(quoted, devices))}]'
        name = quoted(metadata.name)
        return f"{_HEAD}{name}{place}{labels}{_OWNER}{name}{_UID}{quoted(uid)}{_SPEC}{name}{end}}}}}".encode()

    def _place(self, namespace: str) -> str:
        if len(self._places) >= _MOST_PARTS:
            self._places.clear()
        text = self._places[namespace] = f',"namespace":{quoted(namespace)},"labels":'
        return text

    def _node(self, node: str, received: str, count: int, portion: float) -> tuple[str, str]:
        if len(self._nodes) >= _MOST_PARTS:
            self._nodes.clear()
        labels = to_json({names.SELECTED_NODE: node, **orders.pool_label(self.settings)}).decode()
        spec = {
            "selectedNode": node,
            "receivedResourceType": received,
            "receivedGPU": unstructure(orders.received_gpu(count, portion)),
        }
        parts = self._nodes[node, received, count, portion] = labels, f",{to_json(spec).decode()[1:-1]}"
        return parts


def _notes(stamp: Stamp) -> str:
    annotations = stamp.annotations()
    return f',"annotations":{to_json(annotations).decode()}' if annotations else ""
