"""The resource claims of the embedded cluster: made for pods of templates, allocated by binds, freed as pods go.

Source: the controller of resource claims in kube-controller-manager, and the binder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kai.api.conventions.device_claims import ClaimKey, consumer_of, extended_claim_name, is_made_for, with_claims
from kai.api.kinds import key_of
from kai.api.kubernetes.dra import ResourceClaim, ResourceClaimTemplate
from kai.api.kubernetes.pod import Pod, claim_behind
from kai.simulation.deciding.resource_claims import bound_claims, without_user


class Claims:
    """All claims by namespace and name, as they are at this moment."""

    def __init__(self, claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate]) -> None:
        self._claims = {key_of(each): each for each in claims}
        self._templates = {key_of(each): each for each in templates}
        self._listed: tuple[ResourceClaim, ...] | None = None

    def listing(self) -> tuple[ResourceClaim, ...]:
        """Return all claims; the same tuple until one changes."""
        if self._listed is None:
            self._listed = tuple(self._claims.values())
        return self._listed

    def come(self, pod: Pod) -> Pod:
        """Return a pod that is there from now on, as it names the claims that are made for it."""
        told, made = with_claims(pod, self._templates.get, self._claims.get)
        self._put(made)
        return told

    def bind(self, pod: Pod, request: Mapping[str, object]) -> None:
        """Give a pod what a bind request says of claims."""
        self._put(bound_claims(pod, request, self._claims))

    def go(self, pod: Pod) -> None:
        """Free what a pod had that is gone: claims that were made for it end, others lose their user."""
        if not self._claims:
            return
        behind = [claim_behind(pod, each) for each in pod.spec.resource_claims]
        names = {name for name in (*behind, extended_claim_name(pod)) if name}
        for name in names:
            claim = self._claims.get((pod.metadata.namespace, name))
            if claim is not None and is_made_for(claim, pod):
                del self._claims[key_of(claim)]
                self._listed = None
            elif claim is not None:
                self._put([without_user(claim, consumer_of(pod).uid)])

    def _put(self, claims: Iterable[ResourceClaim]) -> None:
        for each in claims:
            key: ClaimKey = key_of(each)
            if self._claims.get(key) is not each:
                self._claims[key], self._listed = each, None


__all__ = ["Claims"]
