"""Kinds whose groups need few rules: one group for the workload, for each pod, or for the workload inside.

Kinds without a grouper of their own get one group for the workload, which starts with any one pod.

Deployments, DaemonSets: a group for each pod, as their pods do not wait for one another.

Notebooks of Kubeflow, SPOTRequests and Azure ML jobs: one group for the workload, with a default priority or minimum.

Pods without an owner: a group for each; for Spark one for the application, as its executors belong to the driver pod.

RunaiJobs: one group for each common name stem of pods.

Wrappers: owners that only wrap the workload that is to be grouped. A wrapper's labels, annotations and defaults by kind
count for the workload inside unless it has its own. An Argo Workflow owns its pods directly, so they are grouped one by
one.
"""

from collections.abc import Mapping
from typing import ClassVar

import attrs

from kai.api import names
from kai.basics.errors import InputError
from kai.roles.podgrouper.decide import group_exists
from kai.roles.podgrouper.draft import GroupDraft
from kai.roles.podgrouper.grouper import ANY_VERSION, KindPattern, Request
from kai.roles.podgrouper.resource import Resource
from kai.roles.podgrouper.rules import BUILD, INFERENCE, TRAIN, class_exists, group_name, read_defaults, standard_draft


class Default:
    """One group for each top owner. Listed kinds come here, and every kind that no other grouper claims."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (
        KindPattern("apps", "v1", "ReplicaSet"),
        KindPattern("apps", "v1", "StatefulSet"),
        KindPattern("kubeflow.org", "v1alpha1", "ScheduledWorkflow"),
        KindPattern("kubevirt.io", "v1", "VirtualMachineInstance"),
        KindPattern("machinelearning.seldon.io", "v1", "SeldonDeployment"),
        KindPattern("machinelearning.seldon.io", "v1alpha2", "SeldonDeployment"),
        KindPattern("tekton.dev", "v1", "PipelineRun"),
        KindPattern("tekton.dev", "v1", "TaskRun"),
        KindPattern("workspace.devfile.io", "v1alpha2", "DevWorkspace"),
    )

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group; labels of every owner in the chain count."""
        return standard_draft(request, request.owner, request.owners)


FALLBACKS = {"Deployment": INFERENCE, "DaemonSet": TRAIN}
"""The default priority class by kind. Pods of a DaemonSet have the same one as pods without an owner."""


class Deployment:
    """A group for each pod: replicas of a service do not wait for one another."""

    kinds: ClassVar[tuple[KindPattern, ...]] = tuple(KindPattern("apps", "v1", kind) for kind in FALLBACKS)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return a group that belongs to the pod, with the labels of its owner.

        Source: the peer's Deployment grouper. It has no right to read DaemonSets, so that their pods are grouped one by
            one there as well, and labels of the DaemonSet do not count.
        """
        draft = standard_draft(request, request.owner, fallback=FALLBACKS.get(request.owner.kind.kind, TRAIN))
        return attrs.evolve(draft, owner=request.pod.reference, name=group_name(request.pod))


class Notebook:
    """One group for the notebook, of build priority unless it says otherwise: a person sits in front of it."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("kubeflow.org", "v1beta1", "Notebook"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group."""
        return standard_draft(request, request.owner, fallback=BUILD)


class SpotRequest:
    """One group for the request, of inference priority unless it says otherwise."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("egx.nvidia.io", "v1", "SPOTRequest"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group."""
        return standard_draft(request, request.owner, fallback=INFERENCE)


NODE_COUNT = ("spec", "job", "options", "envs", "AZUREML_NODE_COUNT")


class AmlJob:
    """A gang of as many pods as the job has nodes."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("amlarc.azureml.com", "v1alpha1", "AmlJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the node count as its minimum.

        Raises: InputError when the job has no node count.
        """
        fields = request.owner.fields
        count = fields.integer(*NODE_COUNT)
        if count is None:
            raise fields.error(NODE_COUNT, None, "the number of nodes")
        return attrs.evolve(standard_draft(request, request.owner), min_member=count)


SPARK_NAME = "spark-app-name"
SPARK_SELECTOR = "spark-app-selector"


class Pod:
    """A group for the pod at the top of the chain; for Spark, one for the application."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("", "v1", "Pod"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group, named after the application if Spark labels name one.

        Raises: InputError when the application has an empty name.
        """
        draft = standard_draft(request, request.owner)
        labels = request.pod.labels
        if SPARK_NAME not in labels or SPARK_SELECTOR not in labels:
            return draft
        if not labels[SPARK_SELECTOR]:
            field = f'metadata.labels["{SPARK_SELECTOR}"]'
            raise request.pod.error(field, labels[SPARK_SELECTOR], "the name of the Spark application")
        return attrs.evolve(draft, name=labels[SPARK_SELECTOR])


class RunaiJob:
    """A group named after the pod without its last part, which a hyper-parameter search varies."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("run.ai", "v1", "RunaiJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group; an existing group with the name of an earlier release keeps its pods."""
        draft = standard_draft(request, request.owner)
        legacy_name = _legacy_name(request)
        if group_exists(request, legacy_name):
            return attrs.evolve(draft, name=legacy_name)
        stem, dash, _ = request.pod.name.rpartition("-")
        return attrs.evolve(draft, name=f"pg-{stem if dash else request.pod.name}-{request.owner.uid}")


def _legacy_name(request: Request) -> str:
    job = request.owner
    try:
        is_parallel = (job.fields.integer("spec", "parallelism") or 0) > 1
    except InputError:
        is_parallel = False  # an invalid number counts as absent; only the name of an old group depends on it
    return f"pg-{request.pod.name if is_parallel else job.name}-{job.uid}"


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
            # Owners above get the defaults only: a wrapper's own labels count only for groupers that read the workload.
            owners = (*owners[:-1], attrs.evolve(inner, labels={**defaults, **inner.labels}))
        grouper = request.groupers.of_kind(workload.kind) or request.groupers.default
        return grouper.draft(attrs.evolve(request, owner=workload, owners=owners))


def _default_labels(request: Request, wrapper: Resource) -> Mapping[str, str]:
    """Return the defaults of the wrapper's kind as equivalent labels."""
    entry = read_defaults(request.reader, request.settings).of(wrapper.kind)
    if entry is None:
        return {}
    named = entry.priority_class if class_exists(entry.priority_class, request.reader) else ""
    labels = {names.PRIORITY_CLASS: named, names.PREEMPTIBILITY: entry.preemptibility}
    return {key: value for key, value in labels.items() if value}
