"""What the kind of a workload means for its pods over time: what progresses together, and how pods come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.api.scheduling.pod_group import PodGroupSpec, least_members
from kai.lenient import mapping_of, part_of
from kai.virtual.scenes.job_plans import Replacement

ALWAYS: Final = 1 << 30
"""Crashes that an owner makes good which never gives up."""
_JOB_BACKOFF: Final = 6
"""Source: the default of a Job's backoffLimit."""
_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet"})
_EACH: Final = frozenset({"Deployment", "InferenceService", "NIMService", "ReplicaSet", "StatefulSet"})
"""Pods of these progress each for itself."""


@attrs.frozen(kw_only=True)
class Owner:
    """How the owner of pods behaves."""

    replacement: Replacement = Replacement.SAME_NAME
    progresses_together: bool = True
    restarts: int = ALWAYS
    at_once: int = 0
    """How many pods it runs at the same time; 0 for all."""


def owner_of(manifest: Mapping[str, Any]) -> Owner:
    """Return how the owner that a manifest describes behaves. Source: the controllers of these kinds."""
    kind, spec = str(manifest.get("kind")), mapping_of(manifest, "spec")
    if kind in {"Deployment", "ReplicaSet"}:
        return Owner(replacement=Replacement.NEW_GROUP, progresses_together=False)
    if _is_job(manifest):
        parallelism, backoff = spec.get("parallelism"), spec.get("backoffLimit")
        return Owner(
            replacement=Replacement.NEW_NAME,
            progresses_together=False,
            restarts=backoff if isinstance(backoff, int) else _JOB_BACKOFF,
            at_once=parallelism if isinstance(parallelism, int) else 1,
        )
    if kind == "JobSet":
        most = part_of(spec, "failurePolicy", "maxRestarts")
        return Owner(restarts=most if isinstance(most, int) else 0)
    policy = part_of(spec, "runPolicy", "backoffLimit")
    return Owner(progresses_together=kind not in _EACH, restarts=policy if isinstance(policy, int) else ALWAYS)


def is_scaled(kind: str) -> bool:
    """Return whether workloads of a kind have replicas that may change over time."""
    return kind in _SCALED or kind == "PodGroup"


def with_all_pods(manifest: Mapping[str, Any], replicas: int | None) -> Mapping[str, Any]:
    """Return a workload that makes all the pods that it will ever have: so many replicas, every completion."""
    spec = mapping_of(manifest, "spec")
    if replicas is not None and manifest.get("kind") in _SCALED:
        return {**manifest, "spec": {**spec, "replicas": replicas}}
    completions = spec.get("completions")
    if _is_job(manifest) and isinstance(completions, int) and spec.get("parallelism") != 0:
        return {**manifest, "spec": {**spec, "parallelism": completions}}
    return manifest


def _is_job(manifest: Mapping[str, Any]) -> bool:
    """Return whether a workload is a Job of Kubernetes: other groups have kinds of the same name."""
    return manifest.get("kind") == "Job" and str(manifest.get("apiVersion")).startswith("batch/")


def gang_of(spec: PodGroupSpec, pods: int) -> int:
    """Return how many pods of a group must run for it to make progress."""
    return min(pods, least_members(spec))
