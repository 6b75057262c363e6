"""The resource claims that kube-controller-manager makes of templates for pods that wait, where none runs."""

from collections.abc import Collection

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.device_claims import ClaimKey, with_claims
from kai.api.kinds import key_of
from kai.api.kubernetes.pod import Pod


def with_claims_of_templates(objects: ClusterObjects, pods: Collection[ClaimKey] | None = None) -> ClusterObjects:
    """Return a cluster with the claims that pods lack: those called ``pods`` (namespace and name), or all."""
    templates = {key_of(each): each for each in objects.resource_claim_templates}
    if not templates:
        return objects
    claims = {key_of(each): each for each in objects.resource_claims}
    found: list[Pod] = []
    for pod in objects.pods:
        if pods is not None and key_of(pod) not in pods:
            found.append(pod)
            continue
        told, made = with_claims(pod, templates.get, claims.get)
        claims |= {key_of(each): each for each in made}
        found.append(told)
    return attrs.evolve(objects, pods=tuple(found), resource_claims=tuple(claims.values()))
