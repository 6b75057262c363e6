"""Let no second pod have a claim that one pod may use at a time (``ReadWriteOncePod``).

A pod keeps its claim until it is gone. A pod that is terminating, or evicted, bars no other pod; but the other is
promised its place, and bound only once the claim is free.

Source: kube-scheduler's VolumeRestrictions filter. KAI-Scheduler does not run it: both pods are bound, and the second
waits on its node for the volume, with its GPUs.
"""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from kai.framework import PodRow, PodRows, SessionView, Shape
from kai.plugins.volumes.objects import VolumeCatalog
from kai.plugins.volumes.reach import Answer

IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
_MODE = "ReadWriteOncePod"

Claims = frozenset[tuple[str, str]]
"""Claims by namespace and name."""


@attrs.frozen(eq=False)
class Exclusive:
    """Which pods have which claims that only one pod may have."""

    session: SessionView
    wanted: Sequence[Claims]
    """Those of each shape."""
    _rivals: dict[Claims, PodRows] = attrs.field(factory=dict)

    @classmethod
    def of(cls, session: SessionView, catalog: VolumeCatalog) -> "Exclusive | None":
        """Return what is known of such claims; None if no shape has one."""
        if not any(_MODE in claim.access_modes for claim in catalog.claims.values()):
            return None
        wanted = session.snapshot.by_shape("exclusive claims of shapes", lambda shape: _claims(catalog, shape), catalog)
        return cls(session, wanted) if any(wanted) else None

    def answers(self, pod: PodRow) -> Iterator[Answer]:
        """Yield why no node takes the pod while another one has a claim of its."""
        if self.wanted[self.session.shape_of(pod)]:
            users, _ = self.session.staying(self._rivals_of(pod))
            yield IN_USE, np.full(len(self.session.snapshot.nodes), not len(users), np.bool_)

    def waits(self, pod: PodRow) -> bool:
        """Return whether a pod is leaving that has a claim which this one needs, wherever this one goes."""
        if not self.wanted[self.session.shape_of(pod)]:
            return False
        users, _ = self.session.leaving(self._rivals_of(pod))
        return len(users) > 0

    def _rivals_of(self, pod: PodRow) -> PodRows:
        claims = self.wanted[self.session.shape_of(pod)]
        if claims not in self._rivals:
            rivals = np.array([bool(claims & other) for other in self.wanted], np.bool_)
            self._rivals[claims] = self.session.pods_of_shapes(rivals)
        return self._rivals[claims]


def _claims(catalog: VolumeCatalog, shape: Shape) -> Claims:
    named = {(shape.namespace, name) for name in shape.constraints.volume_claims}
    return frozenset(key for key in named if key in catalog.claims and _MODE in catalog.claims[key].access_modes)
