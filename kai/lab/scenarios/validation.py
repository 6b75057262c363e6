"""Reading hand-written scenarios: each error names the key, the value that was found, and a valid one.

`node` and `topology` turn nodes and topologies of the short form into Kubernetes objects. `read_expected` reads its
expectations: ``2 running, 1 pending``, ``{pending: OverLimit}``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kai.answers.cases.case import Expected
from kai.api import names
from kai.api import values as times
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.parsing import is_number, is_whole, unsigned
from kai.basics.wording import shown
from kai.deciding.configuration.registry import suggestion

_MOST = 100_000
"""Most nodes or pods of a scenario; beyond that a file is hardly hand-written."""
STATES = ("allocated", "pipelined", "running", "pending", "evicted", "moved", "terminating", "gated", "finished")
_CLAUSE = re.compile(r"(?:(?P<count>[0-9]{1,9})\s+)?(?P<state>[a-z]+)(?:\s+on\s+(?P<nodes>.+))?")
_RANGE = re.compile(r"(.*?)(\d+)\.\.(.*?)(\d+)")

Values = Mapping[str, Any]


def fields(value: object, keys: Sequence[str], place: str) -> Values:
    """Return a mapping whose keys are all among ``keys``; None becomes an empty one.

    Raises: InputError.
    """
    values = mapping(value, place)
    for key in values:
        if key not in keys:
            raise InputError(f"{place}: found key {shown(key)}; {suggestion(key, list(keys))}")
    return values


def texts(value: object, place: str) -> Sequence[str]:
    """Return a list of texts; None becomes an empty one.

    Raises: InputError.
    """
    if value is None:
        return ()
    if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
        return value
    raise InputError(f"{place}: found {shown(value)}, expected a list of texts")


def mapping(value: object, place: str) -> Values:
    """Return a mapping with text keys; None becomes an empty one.

    Raises: InputError.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{place}: found {shown(value)}, expected a mapping with names as keys")
    return value


def whole(values: Values, key: str, default: int, place: str) -> int:
    """Return a whole number that is not negative.

    Raises: InputError.
    """
    value = values.get(key, default)
    # The bound comes before the objects are made: "members: 1e9" would fill the memory.
    if is_whole(value) and 0 <= value <= _MOST:
        return value
    raise InputError(f"{place}.{key}: found {shown(value)}, expected a whole number from 0 to {_MOST}")


def boolean(values: Values, key: str, place: str, *, default: bool) -> bool:
    """Return true or false; a text such as "false" is neither.

    Raises: InputError.
    """
    value = values.get(key, default)
    # YAML makes "no" and "off" booleans or texts by version; a text is refused rather than taken as true.
    if isinstance(value, bool):
        return value
    raise InputError(f"{place}.{key}: found {shown(value)}, expected true or false")


def seconds(value: object, place: str) -> float:
    """Return a duration in seconds.

    Raises: InputError.
    """
    try:
        return times.seconds(str(value))
    except BadValue as bad:
        raise InputError(f"{place}: found {shown(value)}, expected {bad.wanted}") from None


def spread(name: str, place: str) -> Iterator[str]:
    """Yield the names that ``n1..n4`` stands for, or the name itself.

    Raises: InputError.
    """
    match = _RANGE.fullmatch(name)
    if match is None or match[1] != match[3]:
        yield name
        return
    first, last = unsigned(match[2]), unsigned(match[4])
    if first is None or last is None or not 0 <= last - first < _MOST:
        raise InputError(f"{place}: found {shown(name)}, expected a range of at most {_MOST} nodes, in ascending order")
    # As in a shell: n01..n12 keeps its zeros, so that names sort like numbers.
    width = len(match[2]) if match[2].startswith("0") else 0
    for number in range(first, last + 1):
        yield f"{match[1]}{number:0{width}d}"


NODE_KEYS = (
    "gpu",
    "cpu",
    "memory",
    "pods",
    "labels",
    "taints",
    "ready",
    "cordoned",
    "gpu_memory",
    "model",
    "resources",
)

Manifest = dict[str, Any]


def node(name: str, values: Values, place: str) -> Manifest:
    """Return a node with large defaults for CPU and memory.

    Raises: InputError.
    """
    gpus = values.get("gpu", 0)
    amounts = {
        "cpu": str(values.get("cpu", 1000)),
        "memory": str(values.get("memory", "4Ti")),
        "pods": str(values.get("pods", 110)),
    }
    labels = {"kubernetes.io/hostname": name, **mapping(values.get("labels"), f"{place}.labels")}
    if gpus:
        amounts[names.NVIDIA_GPU] = str(gpus)
        labels[names.NODE_GPU_COUNT] = str(gpus)
    if "gpu_memory" in values:
        labels[names.NODE_GPU_MEMORY] = str(values["gpu_memory"])
    if "model" in values:
        labels[names.NODE_GPU_MODEL] = str(values["model"])
    amounts |= {key: str(value) for key, value in mapping(values.get("resources"), f"{place}.resources").items()}
    ready = "True" if boolean(values, "ready", place, default=True) else "False"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {
            "unschedulable": boolean(values, "cordoned", place, default=False),
            "taints": [_taint(text) for text in texts(values.get("taints"), f"{place}.taints")],
        },
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": ready}]},
    }


def _taint(text: str) -> Manifest:
    """Return the taint that ``key=value:Effect`` stands for; the default effect is NoSchedule."""
    head, _, effect = text.partition(":")
    key, _, value = head.partition("=")
    return {"key": key, "value": value, "effect": effect or "NoSchedule"}


def topology(name: str, levels: Sequence[str]) -> Manifest:
    """Return a topology of these levels, the widest first."""
    return {
        "apiVersion": names.TOPOLOGY_VERSION,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": level} for level in levels]},
    }


def node_names(objects: Sequence[Any]) -> list[str]:
    """Return the names of the nodes among objects; faults of other objects are reported where these are read."""
    nodes = [each for each in objects if isinstance(each, Mapping) and each.get("kind") == "Node"]
    metadata = [each.get("metadata") for each in nodes]
    return [str(each["name"]) for each in metadata if isinstance(each, Mapping) and "name" in each]


def read_expected(document: Mapping[str, Any], place: str) -> Expected | None:
    """Return the expectations of ``document``, None without any.

    Raises: InputError for a sentence that cannot be read.
    """
    groups = mapping(document.get("expect"), f"{place}: expect")
    for name, want in groups.items():
        for clause in sentence_of(want, f"{place}: expect.{name}").split(","):
            parsed_clause(clause, f"{place}: expect.{name}")
    idle = _gpus(document, "idle", place)
    shares = _gpus(document, "shares", place)
    return Expected(groups=groups, idle=idle, shares=shares) if groups or idle or shares else None


def sentence_of(want: object, place: str) -> str:
    """Return the expectation for the pods of a group, without the reason.

    Raises: InputError.
    """
    if isinstance(want, str):
        return want
    if isinstance(want, Mapping) and len(want) == 1:
        return str(next(iter(want)))
    raise InputError(f'{place}: found {shown(want)}, expected "allocated on n1" or {{pending: a reason}}')


def parsed_clause(clause: str, place: str) -> tuple[int | None, str, tuple[str, ...]]:
    """Return the expected number of pods, None for all, their state and their nodes.

    Raises: InputError.
    """
    match = _CLAUSE.fullmatch(clause.strip())
    if match is None or match["state"] not in STATES:
        raise InputError(
            f"{place}: found {shown(clause.strip())}, expected a number, one of {', '.join(STATES)}, and nodes"
        )
    count = None if match["count"] is None else int(match["count"])
    return count, match["state"], tuple((match["nodes"] or "").replace(" and ", " ").split())


def _gpus(document: Mapping[str, Any], key: str, place: str) -> Mapping[str, float]:
    """Return the expected number of GPUs for each name below ``key``."""
    found = mapping(document.get(key), f"{place}: {key}")
    for name, number in found.items():
        if not is_number(number):
            raise InputError(f"{place}: {key}.{name}: found {shown(number)}, expected a number of GPUs")
    return found
