"""Labels and annotations, checked like fields: misspelt, unknown and misplaced keys, and values without effect.

An API server accepts any key, so a misspelt one has no effect and causes no message. Objects from an API server are
checked as well: it drops no key.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.conventions.runtime_limits import WANTED, Policy, is_runtime
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.parsing import mapping_of
from kai.manifests.expansion import is_workload
from kai.manifests.findings import Document, Finding
from kai.manifests.positions import Path
from kai.manifests.workloads.table import pod_templates

_LABELS, _ANNOTATIONS = "labels", "annotations"
_WORKLOAD, _POD, _QUEUE, _NAMESPACE, _GROUP = "workload", "pod", "queue", "namespace", "pod group"
_DOMAIN: Final = "kai.scheduler/"
_SIMULATION: Final = "simulation.kai.scheduler/"
_SHORTEST: Final = 9
"""Shorter keys, such as ``app`` and ``user``, resemble too many others."""
_MOST_EDITS: Final = 2
_PREFIXES: Final = ("kai", "kai-scheduler", "run.ai", "runai", "scheduling.run.ai", "kai.scheduler.io", "kai.sh")
"""Prefixes that users write by mistake for the domain of kai's keys."""


@attrs.frozen(kw_only=True)
class Key:
    """A key with an effect: as a label or as an annotation, on which objects, and with which values."""

    as_: str = _ANNOTATIONS
    on: frozenset[str] = frozenset({_WORKLOAD, _POD})
    values: tuple[str, ...] = ()
    """All valid values; empty if the value is not one of a few words."""
    is_duration: bool = False


def _keys() -> dict[str, Key]:
    label = Key(as_=_LABELS)
    on_pods = Key(on=frozenset({_POD}))
    on_queues, on_namespaces = (Key(on=frozenset({each})) for each in (_QUEUE, _NAMESPACE))
    return {
        names.QUEUE: label,
        names.NODE_POOL: Key(as_=_LABELS, on=frozenset({_WORKLOAD, _POD, _QUEUE, _GROUP})),
        names.PRIORITY_CLASS: label,
        names.PREEMPTIBILITY: Key(as_=_LABELS, values=(names.PREEMPTIBLE, names.NON_PREEMPTIBLE)),
        names.SUBGROUP: Key(as_=_LABELS, on=frozenset({_POD})),
        names.SKIP: Key(values=("true", "false")),
        **dict.fromkeys(
            (
                *(names.MIN_MEMBER, names.TOPOLOGY, names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED),
                *(names.SEGMENT_SIZE, names.SEGMENT_TOPOLOGY_REQUIRED, names.SEGMENT_TOPOLOGY_PREFERRED),
                *(names.PREEMPTION_DELAY, names.STALENESS_GRACE_PERIOD),
            ),
            Key(),
        ),
        **dict.fromkeys(
            (names.MAX_RUNTIME, names.EXPECTED_RUNTIME, names.REQUEUE_DELAY),
            Key(on=frozenset({_WORKLOAD, _POD, _GROUP}), is_duration=True),
        ),
        names.RUNTIME_POLICY: Key(on=frozenset({_WORKLOAD, _POD, _GROUP}), values=tuple(Policy)),
        **dict.fromkeys(
            (
                *(names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES, names.GPU_FRACTION_CONTAINER),
                names.MPS,
            ),
            on_pods,
        ),
        **dict.fromkeys((names.ALLOWED_NAMESPACES, names.ALLOWED_NAMESPACE_LABELS), on_queues),
        names.ALLOWED_PRIORITY_CLASSES: on_namespaces,
        names.ALLOWED_PREEMPTIBILITY: Key(on=frozenset({_NAMESPACE}), values=(names.PREEMPTIBLE,)),
    }


KEYS: Final[Mapping[str, Key]] = _keys()
"""Keys for users to write, by name."""
_WRITTEN: Final = frozenset(
    value for value in vars(names).values() if isinstance(value, str) and value.startswith(_DOMAIN)
)
"""Every key below ``kai.scheduler/`` that kai reads or writes."""
_OF_KUBERNETES: Final = (
    *("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/part-of"),
    *("app.kubernetes.io/component", "app.kubernetes.io/managed-by"),
    *(names.HOSTNAME, "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"),
    *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
)
_WITH_MINIMUM: Final = frozenset({"Job", "JobSet", "CronJob"})
"""Kinds of workloads whose minimum comes from the annotation."""
_DOES_NOT_COUNT: Final = "it has no effect"


def check_keys(document: Document) -> Iterator[Finding]:
    """Yield findings for keys of an object, and of its pod templates, without the effect that was meant."""
    for holder, path, metadata in _holders(document):
        for part in (_LABELS, _ANNOTATIONS):
            for key, value in mapping_of(metadata, part).items():
                if isinstance(key, str):
                    yield from _check(document, holder, (*path, "metadata", part), key, value)


def _holders(document: Document) -> Iterator[tuple[str, Path, Mapping[str, Any]]]:
    """Yield the sort of each object with labels and annotations, its path, and its metadata."""
    manifest = document.manifest
    kind = str(manifest.get("kind"))
    own = {"Pod": _POD, "Queue": _QUEUE, "Namespace": _NAMESPACE, PodGroup.__name__: _GROUP}.get(kind, "")
    made = pod_templates(manifest) if kind != "Pod" else []
    if not own and (made or is_workload(manifest)):
        own = _WORKLOAD
    if own:
        yield own, (), mapping_of(manifest, "metadata")
    for path, template in made:
        yield _POD, path, mapping_of(template, "metadata")


def _check(document: Document, holder: str, path: Path, key: str, value: object) -> Iterator[Finding]:
    known = KEYS.get(key)
    if known is None:
        if key not in _WRITTEN and key not in _OF_KUBERNETES and not key.startswith(_SIMULATION):
            yield from _unknown(document, (*path, key), key)
        return
    part = path[-1]
    if holder == _GROUP and (part != known.as_ or holder not in known.on):
        return  # the pod grouper copies the keys of the workload
    if part != known.as_:
        message = f"{key} stands among {part}, and counts among {known.as_}"
        better = f"{known.as_}: {{{key}: {_quoted(value)}}}"
        yield document.finding("J021", message, (*path, key), at_key=True, hint=_DOES_NOT_COUNT, help=better)
    elif holder not in known.on:
        yield from _elsewhere(document, holder, (*path, key), key, known)
    elif key == names.MIN_MEMBER and holder == _WORKLOAD and document.manifest.get("kind") not in _WITH_MINIMUM:
        kind = document.manifest.get("kind")
        message = f"{key} does not count on a {kind}: its own fields say how many pods start together"
        yield document.finding("J031", message, (*path, key), at_key=True, hint=_DOES_NOT_COUNT)
    if part == known.as_ and known.values and value not in known.values:
        yield _other_value(document, (*path, key), key, value, known.values)
    if part == known.as_ and known.is_duration and not is_runtime(value, key):
        message = f"{key}: found {_quoted(value)}, expected {WANTED}: what is written does not count"
        yield document.finding("F007", message, (*path, key), found=str(value), expected=WANTED)


def _elsewhere(document: Document, holder: str, place: Path, key: str, known: Key) -> Iterator[Finding]:
    """Yield a finding for a key on a sort of object where it has no effect."""
    kind = document.manifest.get("kind")
    if known.on == {_POD} and holder == _WORKLOAD:
        hint, where = "move it into the metadata of the pod template", "its pods"
    else:
        hint, where = _DOES_NOT_COUNT, f"a {' or a '.join(sorted(known.on))}"
    subject = f"the {kind}" if holder != _POD or kind == "Pod" else "the pods"
    yield document.finding("J021", f"{key} stands on {subject}, not on {where}", place, at_key=True, hint=hint)


def _other_value(document: Document, place: Path, key: str, value: object, values: tuple[str, ...]) -> Finding:
    near = difflib.get_close_matches(str(value), values, n=1)
    wanted = " or ".join(values)
    return document.finding(
        "F007",
        f"{key}: found {_quoted(value)}, expected {wanted}: what is written does not count",
        place,
        found=str(value),
        expected=wanted,
        hint=f"is it {near[0]}?" if near else f"must be {wanted}",
        help=f"{key}: {_quoted(near[0])}" if near else "",
    )


def _unknown(document: Document, place: Path, key: str) -> Iterator[Finding]:
    """Yield a finding for a key that resembles a known one, or that has kai's domain and is not read by kai."""
    near = nearest_key(key)
    if near:
        yield document.finding(
            "F005",
            f"{key} is no key that counts",
            place,
            at_key=True,
            found=key,
            expected=near,
            hint=f"is it {near}?",
            help=f"{near}:",
        )
    elif key.startswith(_DOMAIN):
        yield document.finding("F006", f"kai reads no key {key}", place, at_key=True, found=key, hint=_DOES_NOT_COUNT)


@cache
def nearest_key(key: str) -> str:
    """Return the known key that was probably meant; "" if none is similar.

    Keys of kai are similar by two edits, by another prefix, and below their domain by similar names.
    """
    known = [*KEYS, *_OF_KUBERNETES]
    within = nearest(key, known)
    if within:
        return within
    prefix, slash, name = key.rpartition("/")
    bare = {each.rpartition("/")[2]: each for each in KEYS}
    # The prefix first: a name such as `queue` below the domain of another project is not meant for kai.
    is_of_kai = key.startswith(_DOMAIN) or prefix in _PREFIXES or edits(f"{prefix}/", _DOMAIN, 3) <= 3
    if not slash:  # a key without a prefix must match a whole name
        return bare.get(key, "") if len(key) >= _SHORTEST else ""
    if not is_of_kai:
        return ""
    if name in bare:
        return bare[name]
    found = difflib.get_close_matches(name, bare, n=1, cutoff=0.7)
    return bare[found[0]] if found else ""


def nearest(word: str, known: Collection[str]) -> str:
    """Return the known word with the fewest edits from ``word``, two at most; "" if there is none."""
    if len(word) < _SHORTEST:
        return ""
    found = sorted((edits(word, each, _MOST_EDITS), each) for each in known if len(each) >= _SHORTEST)
    return found[0][1] if found and 0 < found[0][0] <= _MOST_EDITS else ""


def edits(one: str, other: str, most: int) -> int:
    """Return the number of inserted, deleted, changed or swapped letters; ``most`` + 1 if there are more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        # Three rows are enough: a swap of two letters looks back two rows, everything else one.
        before, last, row = row, before, [at]
        for place, wanted in enumerate(other, 1):
            cost = min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != wanted))
            if last and place > 1 and letter == other[place - 2] and one[at - 2] == wanted:
                cost = min(cost, last[place - 2] + 1)
            row.append(cost)
    return min(row[-1], most + 1)


def _quoted(value: object) -> str:
    return f'"{value}"' if str(value) in {"true", "false"} or not isinstance(value, str) else value
