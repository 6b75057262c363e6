"""MPIJobs, whose launcher may be created only when the workers are ready."""

from typing import ClassVar

import attrs

from kai.errors import InputError
from kai.podgrouper import kinds
from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.lookup import Absent, Many
from kai.podgrouper.replicas import distributed_draft, replicas_of
from kai.podgrouper.settings import KindPattern

LAUNCHER = "Launcher"
REPLICA_SPECS = "mpiReplicaSpecs"
DELAYED_LAUNCHER = "WaitForWorkersReady"
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"


class MpiJob:
    """One gang of launcher and workers; without the launcher for as long as it waits for the workers."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (
        KindPattern("kubeflow.org", "v1", "MPIJob"),
        KindPattern("kubeflow.org", "v2beta1", "MPIJob"),
    )

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with all replicas that can exist now as its minimum.

        Raises: InputError when replicas are missing.
        """
        draft = distributed_draft(request, REPLICA_SPECS, (LAUNCHER,))
        fields = request.owner.fields
        if fields.text("spec", "launcherCreationPolicy") != DELAYED_LAUNCHER or _has_launcher(request):
            return draft
        roles = fields.child("spec", REPLICA_SPECS)
        launchers = 0 if roles is None else replicas_of(roles, LAUNCHER)
        return attrs.evolve(draft, min_member=draft.min_member - launchers)


def _has_launcher(request: Request) -> bool:
    """Return whether a launcher pod exists that is not being deleted."""
    job = request.owner
    read = Many(kinds.POD, job.namespace, ((JOB_NAME, job.name), (JOB_ROLE, "launcher")))
    pods = request.reader.many(read)
    if isinstance(pods, Absent):
        raise InputError(f"{read}: {pods}")
    return any(not pod.is_terminating for pod in pods)
