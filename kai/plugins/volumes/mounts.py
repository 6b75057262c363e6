"""The claims of a shape, and whether its pods can start at all."""

import attrs

from kai.framework import Shape
from kai.plugins.volumes.objects import VolumeCatalog, VolumeClaim

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@attrs.frozen
class Mounts:
    """The claims of a shape, or why none of its pods can start."""

    claims: tuple[VolumeClaim, ...] = ()
    refusal: str = ""

    @classmethod
    def of(cls, catalog: VolumeCatalog, shape: Shape) -> "Mounts | None":
        """Return the claims of ``shape``, None if it has none."""
        if not shape.constraints.volume_claims:
            return None
        claims: list[VolumeClaim] = []
        for name in shape.constraints.volume_claims:
            claim = catalog.claims.get((shape.namespace, name))
            refusal = _unusable(catalog, name, claim)
            if claim is None or refusal:
                return cls(refusal=refusal)
            claims.append(claim)
        if any(not is_bound(claim) and not _waits(catalog, claim) for claim in claims):
            return cls(refusal=UNBOUND)
        return cls(claims=tuple(claims))


def _unusable(catalog: VolumeCatalog, name: str, claim: VolumeClaim | None) -> str:
    """Return why a claim cannot be used at all, "" if it can."""
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if claim.deleting:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if claim.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
    if not is_bound(claim) and claim.storage_class and claim.storage_class not in catalog.classes:
        return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
    return ""


def is_bound(claim: VolumeClaim) -> bool:
    """Return whether the claim has its volume; its phase says so a moment after its annotation."""
    return bool(claim.volume) and (claim.bind_completed or claim.phase == "Bound")


def _waits(catalog: VolumeCatalog, claim: VolumeClaim) -> bool:
    """Return whether the claim is bound only once its pod has a node; one that names a volume already is not."""
    found = catalog.classes.get(claim.storage_class)
    return found is not None and found.wait and not claim.volume
