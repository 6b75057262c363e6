"""Refuse pods that ask for GPUs in a way that makes no sense, whichever plugins are enabled.

Without this such a pod would be placed as if it had not asked for a GPU: it would run, and find none.
"""

import numpy as np

from kai.engine.opened import OpenedPlugin
from kai.framework.hooks import PodFilter
from kai.framework.verdict import Code, Verdict
from kai.framework.view import SessionView
from kai.model.rows import PodRow

RULE = "GpuRequest"


def unusable_requests(session: SessionView) -> list[OpenedPlugin]:
    """Return the refusal as that of one more plugin; none where every request makes sense.

    Cost: of one look at each shape that is new.
    """
    refusals = session.snapshot.by_shape("refusals of shapes", lambda shape: shape.gpu.refusal)
    if not any(refusals):
        return []

    def admit_pod(pod: PodRow) -> Verdict:
        return Verdict.refused(Code.POD_REFUSED, rule=RULE, text=refusals[session.shape_of(pod)])

    concerns = np.array(list(map(bool, refusals)), np.bool_)
    return [OpenedPlugin(name=RULE, concerns=concerns, pod_filter=PodFilter(admit_pod))]
