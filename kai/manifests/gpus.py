"""The GPUs that a pod template asks for: whole devices in its resources, a part of one by annotation, or by claims.

Resources and an annotation exclude each other. `Claims` says whether the claims that pods name exist, counts their
GPUs, and has the template of a ComputeDomain.

Source: the admission webhook, for the requests, checked before anything is sent to a cluster; kube-controller-manager,
which creates a claim from each template; the DRA driver of NVIDIA GPUs 0.4.0-rc.1, whose controller creates the
template that a ComputeDomain names.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.conventions.gpu_sharing import LEAST_SHARE, is_share
from kai.api.values import BadValue
from kai.basics.parsing import floating, list_of, mapping_of, mappings_of, part_of, place_of, signed, text_of
from kai.facts.model.units import backed_name, mig_slices
from kai.manifests.faults import exact_amount
from kai.manifests.findings import Document, Finding, Path
from kai.manifests.unused import pods_in

_CONTAINERS = ("containers", "initContainers")
_SHARES = (names.GPU_FRACTION, names.GPU_MEMORY)


def check_gpus(document: Document, path: Path, template: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings for faults in the GPU requests of a template's pods."""
    at = (*path, "metadata", "annotations")
    annotations = _texts(template)
    whole: Path | None = None
    for place, resource, value in _amounts(template, path):
        if resource in names.GPU_RESOURCES or resource.startswith(names.MIG_PREFIX):
            yield from _whole(document, place, resource, value)
            yield from _unequal(document, place, template, path)
            whole = whole or place
    if names.GPU_FRACTION in annotations:
        yield from _fraction(document, (*at, names.GPU_FRACTION), annotations[names.GPU_FRACTION])
    if names.GPU_MEMORY in annotations:
        yield from _memory(document, (*at, names.GPU_MEMORY), annotations[names.GPU_MEMORY])
    shares = [name for name in _SHARES if name in annotations]
    if shares and whole is not None:
        message = f"{shares[0]} and {whole[-1]} are asked for together"
        hint = f"a pod has either whole GPUs or a part of one; leave out this or {shares[0]}"
        yield document.finding("J013", message, whole, at_key=True, hint=hint)
    if len(shares) > 1:
        message = "gpu-fraction and gpu-memory are given together"
        yield document.finding("J014", message, (*at, names.GPU_MEMORY), at_key=True, hint="only one of them can count")
    yield from _devices(document, at, annotations, is_sharing=bool(shares))
    yield from _container(document, at, annotations, template)


def gpus_of(pod: Mapping[str, Any], parts: Mapping[str, float] | None = None) -> float:
    """Return the number of GPUs that a pod requests, shares as fractions; invalid amounts count as none.

    MIG slices count as queues count them. ``parts`` are the parts of a GPU that device classes serve resources with, by
    the name under which containers request them (``backed_name``).
    """
    annotations = _texts(pod)
    portion = floating(annotations.get(names.GPU_FRACTION, ""))
    if portion is not None and math.isfinite(portion):
        return portion * (signed(annotations.get(names.GPU_FRACTION_DEVICES, "1")) or 1)
    asked: dict[tuple[Path, str], float] = {}
    for place, resource, value in _amounts(pod, ()):
        found = exact_amount(value)
        each = mig_slices(resource)[0] or float(resource in names.GPU_RESOURCES)
        each = (parts or {}).get(backed_name(resource), each)
        # Containers only, since init containers have ended by then. Of limits and requests the larger: limits stand for
        # requests that are not given.
        if each and found is not None and "containers" in place:
            which = place[:3], resource
            asked[which] = max(asked.get(which, 0.0), float(found) * each)
    return sum(asked.values())


def _whole(document: Document, path: Path, resource: str, value: object) -> Iterator[Finding]:
    number = exact_amount(value)
    if number is None or (number.denominator == 1 and number >= 0):
        return  # the check of amounts reports invalid values
    if number < 0:  # the check of amounts reports this too, except for objects from a cluster
        yield document.bad_value(BadValue(str(value), "a quantity that is not negative"), path)
        return
    shown = f"{float(number):g}"
    if 0 < number < 1 and resource == names.NVIDIA_GPU:
        hint, better = "for a part of a GPU use an annotation of the pod", f'gpu-fraction: "{shown}"'
    else:
        hint, better = "Kubernetes counts whole devices", f"{resource}: {max(1, math.ceil(number))}"
    message = f"{resource} must be a whole number, found {shown}"
    yield document.finding("J010", message, path, hint=hint, help=better, found=shown, expected="a whole number")


def _unequal(document: Document, place: Path, template: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Yield a finding for a GPU request that differs from the limit."""
    *above, which, resource = place[len(path) :]
    if which != "requests":
        return
    resources: Any = template
    for step in above:
        resources = resources[step]
    limit, asked = part_of(resources, "limits", str(resource)), resources["requests"][resource]
    numbers = exact_amount(asked), exact_amount(limit)
    if limit is None or numbers[0] == numbers[1] or any(each is None or each < 0 for each in numbers):
        return  # the check of amounts reports invalid values
    message = f"{resource} is {asked} in requests and {limit} in limits, expected the same"
    hint = "Kubernetes refuses the pod: GPUs cannot be overcommitted"
    yield document.finding("J010", message, place, hint=hint, help=f"{resource}: {limit}", found=str(asked))


def _fraction(document: Document, path: Path, text: str) -> Iterator[Finding]:
    number = floating(text)
    if number == 1 and _is_amount(text):
        message = f'gpu-fraction is a whole GPU, found "{text}": the scheduler takes it, admission webhooks do not'
        hint = "for whole GPUs use the resources of a container"
        yield document.finding("J028", message, path, hint=hint, found=text, expected="0 < gpu-fraction < 1")
        return
    if number is not None and 0 < number < 1 and _is_amount(text):
        if not is_share(text):
            least = f"{LEAST_SHARE:g}"
            message, hint = f'gpu-fraction must be at least {least}, found "{text}"', "queues count GPUs in hundredths"
            better = f'gpu-fraction: "{least}"'
            yield document.finding("J011", message, path, hint=hint, help=better, found=text, expected=least)
        return
    hint, better = "a part of one GPU", 'gpu-fraction: "0.5"'
    if number is not None and math.isfinite(number) and number >= 1:
        devices = math.ceil(number)
        part = Fraction(text.strip()) / devices if _is_amount(text) else Fraction(1)
        if part == 1:
            hint, better = "for whole GPUs use the resources of a container", f"nvidia.com/gpu: {devices}"
        else:
            said = "one and a half" if number == 1.5 else f"{number:g}"
            each = f"{float(part):.4g}"
            hint = f"for {said} GPUs use {devices} devices of {each} each"
            better = f'gpu-fraction: "{each}"  and  gpu-fraction-num-devices: "{devices}"'
    message = f'gpu-fraction must be more than 0 and less than 1, found "{text}"'
    yield document.finding("J011", message, path, hint=hint, help=better, found=text, expected="0 < gpu-fraction < 1")


def _memory(document: Document, path: Path, text: str) -> Iterator[Finding]:
    number = signed(text)
    if number is None or number <= 0:
        message = f'gpu-memory must be a whole number of MiB above 0, found "{text}"'
        yield document.finding(
            "J012",
            message,
            path,
            hint="memory of one GPU in MiB, without a unit",
            help='gpu-memory: "8192"',
            found=text,
        )


def _devices(document: Document, at: Path, annotations: Mapping[str, str], *, is_sharing: bool) -> Iterator[Finding]:
    key = names.GPU_FRACTION_DEVICES
    if key not in annotations:
        return
    number = signed(annotations[key])
    if number is None or number < 1:
        message = f'{key} must be a whole number above 0, found "{annotations[key]}"'
        yield document.finding("J015", message, (*at, key), help=f'{key}: "1"', found=annotations[key])
    elif not is_sharing:
        hint = "add the part that the pod gets of each device"
        yield document.finding(
            "J015",
            f"{key} without gpu-fraction or gpu-memory",
            (*at, key),
            at_key=True,
            hint=hint,
            help='gpu-fraction: "0.5"',
        )


def _container(
    document: Document, at: Path, annotations: Mapping[str, str], template: Mapping[str, Any]
) -> Iterator[Finding]:
    key = names.GPU_FRACTION_CONTAINER
    if key not in annotations:
        return
    known = [
        str(each["name"]) for kind in _CONTAINERS for each in mappings_of(template, "spec", kind) if "name" in each
    ]
    if annotations[key] not in known:
        message = f'no container is called "{annotations[key]}"'
        hint = f"containers of the pod: {', '.join(known)}"
        better = f"{key}: {known[0]}" if known else ""
        yield document.finding("J016", message, (*at, key), hint=hint, help=better, found=annotations[key])


def _amounts(template: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str, object]]:
    """Yield every amount of the containers of a template with its path; values of another shape are ignored."""
    for kind in _CONTAINERS:
        for index, container in enumerate(list_of(template, "spec", kind)):
            for part in ("limits", "requests"):
                for name, value in mapping_of(container, "resources", part).items():
                    yield (*path, "spec", kind, index, "resources", part, str(name)), str(name), value


def _is_amount(text: str) -> bool:
    return exact_amount(text) is not None


def _texts(template: Mapping[str, Any]) -> dict[str, str]:
    metadata = template.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    values = found.items() if isinstance(found, Mapping) else ()
    return {str(key): value if isinstance(value, str) else str(value) for key, value in values}


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
