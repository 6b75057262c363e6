"""Do not start pods that could not run: a config map they need does not exist.

Source: the peer's config map predicate, which is asked once for each attempt on a pod, before any node.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import Code, Extension, PodFilter, PodRow, SessionView, Shape, Verdict


@attrs.frozen(kw_only=True)
class ConfigMaps:
    """Refuse pods that need a config map which is not there."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the refusal, for the shapes that miss something."""
        catalog = session.snapshot.catalog
        if not catalog.config_maps_known:
            return ()
        known = catalog.config_maps

        def missed(shape: Shape) -> tuple[str, ...]:
            return tuple(name for name in shape.constraints.config_maps if (shape.namespace, name) not in known)

        missing = session.snapshot.by_shape("missing config maps", missed, known)
        concerns = np.array([bool(names) for names in missing], np.bool_)
        if not concerns.any():
            return ()

        def admit_pod(pod: PodRow) -> Verdict:
            names = " ".join(missing[session.shape_of(pod)])
            return Verdict.refused(Code.POD_REFUSED, rule="ConfigMap", text=f"Missing required configmaps: [{names}]")

        return (PodFilter(admit_pod, concerns=concerns),)
