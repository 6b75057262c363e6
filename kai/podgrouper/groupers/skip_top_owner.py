"""Owners that are looked through: they only wrap the workload that is to be grouped.

What the wrapper says by labels and annotations, and by the defaults of its kind, counts for the workload inside unless
that says it itself. An Argo Workflow owns its pods directly, so they are grouped one by one.
"""

from collections.abc import Mapping
from typing import ClassVar

import attrs

from kai.api import names
from kai.podgrouper.defaults import read_defaults
from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.resource import Resource
from kai.podgrouper.rules import class_exists
from kai.podgrouper.settings import ANY_VERSION, KindPattern

WORKLOADS = ("Training", "Interactive", "Distributed", "Inference", "DistributedInference")


class SkipTopOwner:
    """The group of the owner below the top one, or of the pod where there is none between."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (
        KindPattern("argoproj.io", "v1alpha1", "Workflow"),
        KindPattern("nvidia.com", ANY_VERSION, "DynamoGraphDeployment"),
        KindPattern("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
        *(KindPattern("run.ai", ANY_VERSION, f"{name}Workload") for name in WORKLOADS),
    )

    def draft(self, request: Request, /) -> GroupDraft | None:
        """Return the group of the workload inside, by the grouper of its exact kind, else the default one.

        Raises: InputError as that grouper does.
        Source: the peer's skip-top-owner grouper: a default of the wrapper's kind comes before the wrapper's own label.
        """
        wrapper, owners = request.owner, request.owners[:-1]
        inner = owners[-1] if owners else request.pod
        defaults = _default_labels(request, wrapper)
        labels = {**wrapper.labels, **defaults, **inner.labels}
        annotations = {**wrapper.annotations, **inner.annotations}
        workload = attrs.evolve(inner, labels=labels, annotations=annotations)
        if owners:
            # The chain learns the defaults only: a wrapper's own labels reach those groupers that look at the workload.
            owners = (*owners[:-1], attrs.evolve(inner, labels={**defaults, **inner.labels}))
        grouper = request.groupers.of_kind(workload.kind) or request.groupers.default
        return grouper.draft(attrs.evolve(request, owner=workload, owners=owners))


def _default_labels(request: Request, wrapper: Resource) -> Mapping[str, str]:
    """Return the defaults of the wrapper's kind as the labels that would say the same."""
    entry = read_defaults(request.reader, request.settings).of(wrapper.kind)
    if entry is None:
        return {}
    named = entry.priority_class if class_exists(entry.priority_class, request.reader) else ""
    labels = {names.PRIORITY_CLASS: named, names.PREEMPTIBILITY: entry.preemptibility}
    return {key: value for key, value in labels.items() if value}
