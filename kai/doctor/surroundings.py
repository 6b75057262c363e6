"""Checks of what kai relies on without owning it: resource quotas, runtime classes, and the GPUs that nodes offer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kai.api import names
from kai.api.kubernetes.pod import ENDED
from kai.basics.parsing import QuantityError, amount, list_of, mapping_of, text_of
from kai.basics.wording import counted, first_of
from kai.doctor.seen import Finding, Looked, Manifest, Seen, annotations_of, failure, key_of, name_of, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PODS: Final = ("pods", "count/pods")
_COMPUTE: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""If a quota limits one of these, every pod in the namespace must request it."""
_FRACTION_CLASS: Final = "gpu-fraction-runtime-class-name"
_OLDER_CLASS: Final = "gpu-pod-runtime-class-name"
_DEFAULT_CLASS: Final = "nvidia"
_SHARES: Final = frozenset({names.GPU_FRACTION, names.GPU_MEMORY})


def reservation_quotas(seen: Seen) -> Looked:
    """Check that quotas leave room for the reservation pods, one for each shared GPU."""
    flag, default = "resource-reservation-namespace", names.RESERVATION_NAMESPACE
    places = {each.flags.get(flag) or default for each in seen.programs()} or {default}
    problems: list[Finding] = []
    for quota in sorted(seen.all("resourcequotas"), key=key_of):
        namespace, name = text_of(quota, "metadata", "namespace"), name_of(quota)
        if namespace not in places:
            continue
        hard, used = mapping_of(quota, "spec", "hard"), mapping_of(quota, "status", "used")
        mend = f"kubectl -n {namespace} delete resourcequota {name}    or raise spec.hard: each shared GPU takes a pod"
        gpus = [f"requests.{each}" for each in names.GPU_RESOURCES]
        for key in (each for each in (*_PODS, *gpus) if each in hard):
            most, taken = _whole(hard[key]), _whole(used.get(key, "0"))
            if taken < most:
                continue
            message = f"quota {name} in namespace {namespace} has no {key} left ({taken} of {most})"
            problems.append(
                failure(
                    f"{message}: no further GPU can be shared",
                    mend,
                    about=f"resourcequota/{key_of(quota)}",
                    found=str(most),
                )
            )
        if asked := [each for each in _COMPUTE if each in hard and not _asks(seen)]:
            message = f"quota {name} in namespace {namespace} counts {first_of(asked)}"
            mend = f"{mend}    or kai run --resource-reservation-pod-resources"
            problems.append(
                failure(
                    f"{message}: reservation pods ask for none, and are refused",
                    mend,
                    about=f"resourcequota/{key_of(quota)}",
                )
            )
    return Looked(well="no quota stands in the way of pods that hold shared GPUs", findings=problems)


def _asks(seen: Seen) -> bool:
    """Return whether a flag sets resource requests of reservation pods."""
    return any(each.flags.get("resource-reservation-pod-resources", "{}") not in {"", "{}"} for each in seen.programs())


def runtime_classes(seen: Seen) -> Looked:
    """Check that the runtime classes exist that waiting pods and kai's flags name."""
    known = {name_of(each) for each in seen.all("runtimeclasses")}
    named: dict[str, list[str]] = {}
    for program in seen.programs():
        for flag, value in _classes(program.roles, program.flags):
            named.setdefault(value, []).append(f"--{flag}")
    shares = any(_SHARES & annotations_of(each).keys() for each in _alive(seen))
    pods = Counter(
        value for each in _alive(seen) if (value := text_of(each, "spec", "runtimeClassName")) not in {"", *known}
    )
    problems: list[Finding] = []
    for name in sorted({*pods, *(each for each in named if each and each not in known)}):
        flags = sorted(set(named.get(name, ())))
        who = [f"{counted(pods[name], 'pod')} with it"] if pods[name] else []
        said = " and ".join([*who, *([f"setting {first_of(flags)}"] if flags else [])])
        refused = "; the API server refuses pods that share GPUs" if f"--{_FRACTION_CLASS}" in flags else ""
        mend = f"or kai run {flags[0]}=''" if flags else "or correct spec.runtimeClassName of the workloads"
        severity = failure if shares or pods[name] else warning
        problems.append(
            severity(
                f"runtime class {name} does not exist ({said}){refused}",
                f"install what makes it, such as the GPU operator, {mend}    kubectl get runtimeclasses",
                about=f"runtimeclass/{name}",
            )
        )
    well = f"{counted(len(known), 'runtime class', 'runtime classes')}: all that are named exist"
    return Looked(well=well, findings=problems)


def _classes(roles: Iterable[str], flags: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield flags and the runtime classes that they name, defaults included."""
    if "admission" in roles:
        # As in admission: the older name counts only where the newer one is not given.
        flag = _OLDER_CLASS if _FRACTION_CLASS not in flags and _OLDER_CLASS in flags else _FRACTION_CLASS
        yield flag, flags.get(flag, _DEFAULT_CLASS)
    if "binder" in roles and flags.get("runtime-class-name"):
        yield "runtime-class-name", flags["runtime-class-name"]


def offered_gpus(seen: Seen) -> Looked:
    """Check that nodes offer all the GPUs that they have."""
    short: dict[str, tuple[int, int]] = {}
    count = 0
    for node in seen.all("nodes"):
        has, offers = (_gpus(mapping_of(node, "status", field)) for field in ("capacity", "allocatable"))
        count += bool(has or offers)
        if offers < has:
            short[name_of(node)] = (offers, has)
    if not short:
        return Looked(well=f"{counted(count, 'GPU node')} offer all of their GPUs")
    listed = [f"{name} ({offers} of {has})" for name, (offers, has) in sorted(short.items())]
    offer = "offers" if len(short) == 1 else "offer"
    message = f"{counted(len(short), 'node')} {offer} fewer GPUs than there are: {first_of(listed)}"
    name = min(short)
    help_text = (
        f"kubectl describe node {name}    its device plugin takes unhealthy GPUs out: look at the plugin's log there "
        f"(kubectl get pods -A --field-selector spec.nodeName={name}), and at the GPUs with nvidia-smi"
    )
    return Looked(well="", findings=[warning(message, help_text, about=f"node/{name}", found=first_of(listed))])


def held_gpus(seen: Seen) -> Looked:
    """Check that pods hold no more GPUs of a node than it offers; other schedulers or users may place pods there."""
    ours = {each.pool[0] for each in seen.programs()} or {names.SCHEDULER_NAME}
    held: Counter[str] = Counter()
    others: dict[str, list[str]] = {}
    for pod in _alive(seen):
        node, gpus = text_of(pod, "spec", "nodeName"), _requested(pod)
        if node and gpus:
            held[node] += gpus
            if text_of(pod, "spec", "schedulerName") not in ours:
                others.setdefault(node, []).append(key_of(pod))
    problems: list[Finding] = []
    for each in sorted(seen.all("nodes"), key=name_of):
        name, offers = name_of(each), _gpus(mapping_of(each, "status", "allocatable"))
        if held[name] <= offers:
            continue
        foreign = others.get(name, [])
        whose = f"; {counted(len(foreign), 'pod')} of other schedulers: {first_of(foreign)}" if foreign else ""
        problems.append(
            failure(
                f"node {name}: pods hold {held[name]} GPUs of {offers}{whose}",
                f"kubectl get pods -A --field-selector spec.nodeName={name}    delete what no scheduler placed, or give"
                " those pods schedulerName: kai-scheduler, and keep other schedulers off the node by a taint",
                about=f"node/{name}",
                found=str(held[name]),
                expected=f"at most {offers}",
            )
        )
    return Looked(well="no node has more GPUs in use than it offers", findings=problems)


# --- What is looked at ---------------------------------------------------------------------------------------------


def _alive(seen: Seen) -> Iterator[Manifest]:
    yield from (each for each in seen.all("pods") if text_of(each, "status", "phase") not in ENDED)


def _gpus(amounts: Mapping[str, object]) -> int:
    return sum(_whole(amounts.get(name, "0")) for name in names.GPU_RESOURCES)


def _requested(pod: Manifest) -> int:
    """Return the whole GPUs that containers of a pod request; limits stand in for missing requests."""
    return sum(
        _gpus({**mapping_of(each, "resources", "limits"), **mapping_of(each, "resources", "requests")})
        for each in list_of(pod, "spec", "containers")
    )


def _whole(text: object) -> int:
    try:
        return amount(str(text))
    except QuantityError:
        return 0
