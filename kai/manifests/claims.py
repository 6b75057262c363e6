"""Resource claims of pods: whether the named claims exist, their GPUs, and the template of a ComputeDomain.

Source: kube-controller-manager, which creates a claim from each template; the DRA driver of NVIDIA GPUs 0.4.0-rc.1,
whose controller creates the template that a ComputeDomain names.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kai.basics.parsing import list_of, mapping_of, mappings_of, part_of, place_of, text_of
from kai.manifests.findings import Document, Finding
from kai.manifests.gpus import gpus_of
from kai.manifests.positions import Path
from kai.manifests.unused import pods_in

Place = tuple[str, str, str]
"""Kind, namespace and name."""

CLAIM, TEMPLATE, VOLUME = "ResourceClaim", "ResourceClaimTemplate", "PersistentVolumeClaim"
COMPUTE_DOMAIN: Final = ("resource.nvidia.com", "ComputeDomain")
_CHANNEL: Final = "compute-domain-default-channel.nvidia.com"
_GPU: Final = "gpu"


@attrs.frozen
class Claims:
    """The claims and templates of an input, by kind, namespace and name."""

    found: Mapping[Place, Mapping[str, Any]]

    @classmethod
    def of(cls, manifests: Sequence[Mapping[str, Any]], namespace: str = "default") -> "Claims":
        """Return those among manifests, and templates of ComputeDomains; ``namespace`` is the default one."""
        kinds = (CLAIM, TEMPLATE, VOLUME)  # not a set: the kind in an input may be any value, even an unhashable one
        made = [template_of(each) for each in manifests if is_compute_domain(each)]
        every = [*manifests, *(each for each in made if each is not None)]
        return cls({_place(each, namespace): each for each in every if each.get("kind") in kinds})

    def gpus_with(self, pod: Mapping[str, Any]) -> float:
        """Return the GPUs of a pod with a namespace, by resources and by claims."""
        return gpus_of(pod) + self.gpus_of(pod, str(pod["metadata"]["namespace"]))

    def gpus_of(self, pod: Mapping[str, Any], namespace: str) -> int:
        """Return the number of GPUs in the claims of a pod; a claim that it has under two names counts once."""
        places = [(kind, namespace, name) for kind, name, _ in _named(mapping_of(pod, "spec"))]
        # A claim is one object whatever it is called in the pod; of a template each reference gets a claim of its own.
        named = {*places} - {place for place in places if place[0] == TEMPLATE}
        made = [place for place in places if place[0] == TEMPLATE]
        specs = [mapping_of(self.found.get(place), "spec") for place in sorted(named)]
        specs += [mapping_of(self.found.get(place), "spec", "spec") for place in made]
        return sum(_gpus_of(each) for each in specs)


def template_of(domain: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the template that the controller of a ComputeDomain creates; None if the domain names none."""
    name = text_of(domain, "spec", "channel", "resourceClaimTemplate", "name")
    if not name:
        return None
    namespace = part_of(domain, "metadata", "namespace")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": TEMPLATE,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"spec": {"devices": {"requests": [{"name": "channel", "exactly": {"deviceClassName": _CHANNEL}}]}}},
    }


def check_claims(documents: Sequence[Document], known: Collection[Place], namespace: str) -> Iterator[Finding]:
    """Yield findings for claims and claim templates that pods name and that are not in ``known``."""
    for document in documents:
        manifest = document.manifest
        where = str(part_of(manifest, "metadata", "namespace") or namespace)
        for path, pod in pods_in(manifest):
            for kind, name, place in _named(mapping_of(pod, "spec")):
                if (kind, where, name) not in known:
                    yield document.finding(
                        "J041",
                        f"there is no {kind} {where}/{name}",
                        (*path, "spec", *place),
                        hint="pods that name it wait until there is one",
                        found=name,
                    )


def is_compute_domain(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object is a ComputeDomain."""
    group = str(manifest.get("apiVersion")).rpartition("/")[0]
    return (group, manifest.get("kind")) == COMPUTE_DOMAIN


def _named(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, Path]]:
    """Yield kind and name of each claim or template that a pod's spec names, with its path."""
    for index, claim in enumerate(list_of(spec, "resourceClaims")):
        for kind, field in ((CLAIM, "resourceClaimName"), (TEMPLATE, "resourceClaimTemplateName")):
            name = text_of(claim, field)
            if name:
                yield kind, name, ("resourceClaims", index, field)
    for index, volume in enumerate(list_of(spec, "volumes")):
        name = text_of(volume, "persistentVolumeClaim", "claimName")
        if name:
            yield VOLUME, name, ("volumes", index, "persistentVolumeClaim", "claimName")


def _gpus_of(spec: Mapping[str, Any]) -> int:
    """Return the number of GPUs of a claim, of alternatives the most; "all of a node" is one."""
    total = 0
    for request in mappings_of(spec, "devices", "requests"):
        alternatives = mappings_of(request, "firstAvailable") or [mapping_of(request, "exactly") or request]
        total += max((_count(each) for each in alternatives), default=0)
    return total


def _count(request: Mapping[str, Any]) -> int:
    # By the letters in the name, as the scheduler tells device classes of GPUs from others.
    if _GPU not in text_of(request, "deviceClassName"):
        return 0
    count = request.get("count")
    return count if isinstance(count, int) else 1


def _place(manifest: Mapping[str, Any], namespace: str) -> Place:
    return str(manifest.get("kind")), *place_of(manifest, namespace)
