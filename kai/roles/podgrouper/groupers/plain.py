"""Kinds whose groups need few rules: one group for the workload, for each pod, or for the workload inside.

Kinds without a grouper of their own get one group for the workload, which starts with any one pod.

Deployments, DaemonSets: a group for each pod, as their pods do not wait for one another.

Notebooks of Kubeflow, SPOTRequests and Azure ML jobs: one group for the workload, with a default priority or minimum.

Pods without an owner: a group for each; for Spark one for the application, as its executors belong to the driver pod.

RunaiJobs: one group for each common name stem of pods.

Wrappers: owners that only wrap the workload that is to be grouped. A wrapper's labels, annotations and defaults by kind
count for the workload inside unless it has its own. An Argo Workflow owns its pods directly, so they are grouped one by
one.

Jobs of Volcano and instances of RoleBasedGroups: one gang of the pods that their fields count.
"""

from collections.abc import Mapping
from typing import ClassVar

import attrs

from kai.api import names
from kai.basics.errors import InputError
from kai.basics.parsing import list_of, mapping_of
from kai.roles.podgrouper.decide import group_exists
from kai.roles.podgrouper.grouper import ANY_VERSION, GroupDraft, KindPattern, Request
from kai.roles.podgrouper.resource import Fields, Resource
from kai.roles.podgrouper.rules import BUILD, INFERENCE, TRAIN, class_exists, group_name, read_defaults, standard_draft


class Default:
    """One group for each top owner that kai may read."""

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


class Wrapper:
    """The group of the workload inside, with the labels and annotations of the owner around it."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (
        KindPattern("apps.nvidia.com", ANY_VERSION, "NIMService"),
        KindPattern("argoproj.io", "v1alpha1", "CronWorkflow"),
        KindPattern("disaggregatedset.x-k8s.io", ANY_VERSION, "DisaggregatedSet"),
        KindPattern("flux-framework.org", ANY_VERSION, "MiniCluster"),
        KindPattern("kubeflow.org", "v1beta1", "Experiment"),
        KindPattern("kubeflow.org", "v1beta1", "Trial"),
        KindPattern("kubernetes.dask.org", ANY_VERSION, "DaskCluster"),
        KindPattern("kubernetes.dask.org", ANY_VERSION, "DaskWorkerGroup"),
        KindPattern("ray.io", "v1", "RayCronJob"),
        KindPattern("serving.kserve.io", ANY_VERSION, "InferenceService"),
        KindPattern("serving.kserve.io", ANY_VERSION, "LLMInferenceService"),
        KindPattern("sparkoperator.k8s.io", ANY_VERSION, "SparkApplication"),
        KindPattern("sparkoperator.k8s.io", ANY_VERSION, "SparkConnect"),
        KindPattern("workload.codeflare.dev", ANY_VERSION, "AppWrapper"),
        KindPattern("workloads.x-k8s.io", ANY_VERSION, "RoleInstanceSet"),
    )

    def draft(self, request: Request, /) -> GroupDraft | None:
        """Return the group that the pod would have without its outermost owner.

        Raises: InputError as the grouper of the workload inside does.
        Source: the peer has no right to read these kinds. It ends the chain of owners beneath them, and so makes the
            same groups without the labels and annotations.
        """
        wrapper, owners = request.owner, request.owners[:-1]
        inner = owners[-1] if owners else request.pod
        labels = {**wrapper.labels, **inner.labels}
        workload = attrs.evolve(inner, labels=labels, annotations={**wrapper.annotations, **inner.annotations})
        grouper = request.groupers.choose(workload.kind, request.reader, request.settings)
        inside = attrs.evolve(request, owner=workload, owners=(*owners[:-1], workload) if owners else ())
        return grouper.draft(inside)


ROLE_GANG = "rbg.workloads.x-k8s.io/group-gang-scheduling"
COMPONENT_ORDER = "rolebasedgroup.workloads.x-k8s.io/component-depends-on"


class RoleBasedGroup(Wrapper):
    """One gang for each instance of a role; one of all roles if an annotation says so."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("workloads.x-k8s.io", ANY_VERSION, "RoleBasedGroup"),)

    def draft(self, request: Request, /) -> GroupDraft | None:
        """Return the group of the instance, or that of all roles that do not wait for others.

        Raises: InputError for a size that is no number.
        Source: RoleBasedGroup 0.8.0-alpha.5, which says the size of the whole group to other schedulers.
        """
        if request.owner.annotations.get(ROLE_GANG) != "true":
            return super().draft(request)
        roles = request.owner.fields.children("spec", "roles") or ()
        first = [role for role in roles if not list_of(role.value, "dependencies")]
        least = sum(_or_one(role, "replicas") * _size(role) for role in first)
        return attrs.evolve(standard_draft(request, request.owner), min_member=max(least, 1))


class RoleInstance:
    """One gang of the pods of all components that do not wait for others."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("workloads.x-k8s.io", ANY_VERSION, "RoleInstance"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the sizes of the components as its minimum.

        Raises: InputError for a size that is no number.
        Source: the peer has no grouper for it, and a group for each pod.
        """
        components = request.owner.fields.children("spec", "components") or ()
        first = [each for each in components if COMPONENT_ORDER not in _component_annotations(each)]
        least = sum(_or_one(each, "size") for each in first)
        return attrs.evolve(standard_draft(request, request.owner), min_member=max(least, 1))


def _component_annotations(component: Fields) -> Mapping[str, object]:
    return {
        **mapping_of(component.value, "template", "metadata", "annotations"),
        **mapping_of(component.value, "annotations"),
    }


def _size(role: Fields) -> int:
    """Return how many pods one instance of a role has."""
    for pattern in ("leaderWorkerPattern", "leaderWorkerSet"):
        if role.value.get(pattern) is not None:
            return _or_one(role.child(pattern) or role, "size")
    custom = role.child("customComponentsPattern") if role.value.get("customComponentsPattern") is not None else role
    components = custom.children("components") if custom is not None and custom.value.get("components") else None
    return 1 if components is None else sum(_or_one(each, "size") for each in components)


def _or_one(holder: Fields, key: str) -> int:
    found = holder.integer(key)
    return 1 if found is None else found


class VolcanoJob:
    """One gang of as many pods as minAvailable says, without tasks that wait for others."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("batch.volcano.sh", "v1alpha1", "Job"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with a minimum.

        Raises: InputError for a number that is negative, or is none.
        Source: Volcano's webhook sums up the tasks where minAvailable is 0 or absent. The peer has no right to read
            these Jobs, and a group for each pod.
        """
        fields = request.owner.fields
        stated = fields.integer("spec", "minAvailable") or 0
        if stated < 0:
            raise fields.error(("spec", "minAvailable"), stated, "a number of pods")
        tasks = [each for each in fields.children("spec", "tasks") or () if not mapping_of(each.value, "dependsOn")]
        there = sum(_or_one(task, "replicas") for task in tasks)
        least = sum(_least(task) for task in tasks)
        return attrs.evolve(standard_draft(request, request.owner), min_member=max(1, min(stated or least, there)))


def _least(task: Fields) -> int:
    """Return how many pods of a task start together at least."""
    stated = task.integer("minAvailable")
    return _or_one(task, "replicas") if stated is None else stated


def _default_labels(request: Request, wrapper: Resource) -> Mapping[str, str]:
    """Return the defaults of the wrapper's kind as equivalent labels."""
    entry = read_defaults(request.reader, request.settings).of(wrapper.kind)
    if entry is None:
        return {}
    named = entry.priority_class if class_exists(entry.priority_class, request.reader) else ""
    labels = {names.PRIORITY_CLASS: named, names.PREEMPTIBILITY: entry.preemptibility}
    return {key: value for key, value in labels.items() if value}
