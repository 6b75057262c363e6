"""Kinds without rules of their own: one group for the workload, started by any one pod of it."""

from typing import ClassVar

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import standard_draft
from kai.podgrouper.settings import KindPattern


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
