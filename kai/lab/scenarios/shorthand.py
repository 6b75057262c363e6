"""The short form of a scenario: a cluster in a few lines that read like a sentence, expanded to Kubernetes objects.

    about: A gang waits until every member fits; a smaller group may pass it.
    cluster: {nodes: {n1: {gpu: 4}}}
    queues: {root: {}, a: {parent: root, quota: {gpu: 4}}}
    groups:
      big:   {queue: a, members: 6, each: {gpu: 1}}
      small: {queue: a, members: 2, each: {gpu: 1}}
    run: [allocate]
    expect:
      small: allocated on n1
      big: {pending: needs}

Queues and groups are created in the order in which they are written, a minute apart; everything happens at one instant.
By default, the GPU quota of a queue is 0, and all other bounds are unlimited. A group is a gang of all its members
unless it has a ``minimum``; its ``labels`` and ``annotations`` apply to its pod group and to its pods. Queues may have
``labels`` too. The past usage of queues is ``past_usage: {a: {gpu: 0.6}}``, as fractions of the cluster.
"""

from collections.abc import Iterator, Mapping, Sequence

from kai.api import names
from kai.api import values as times
from kai.api.conventions import gpu_sharing
from kai.basics.errors import InputError
from kai.basics.parsing import is_number
from kai.basics.wording import as_text, shown
from kai.deciding.configuration.registry import suggestion
from kai.lab.scenarios.validation import (
    NODE_KEYS,
    Manifest,
    Values,
    boolean,
    fields,
    mapping,
    node,
    node_names,
    seconds,
    spread,
    texts,
    topology,
    whole,
)
from kai.manifests.fields import unknown_of_pod_spec

NOW = times.instant("2026-01-01T12:00:00Z")
KEYS = (
    "about",
    "cluster",
    "queues",
    "groups",
    "run",
    "cycles",
    "plugins",
    "with",
    "parameters",
    "now",
    "past_usage",
    "kubernetes",
    "expect",
    "idle",
    "shares",
)

_QUEUE_KEYS = (
    "parent",
    "labels",
    "quota",
    "limit",
    "weight",
    "priority",
    "preempt_min_runtime",
    "reclaim_min_runtime",
    "max_runtime",
    "default_runtime",
    "schedules",
    "models",
    "per_user",
    "budgets",
)
_GROUP_KEYS = (
    "queue",
    "members",
    "minimum",
    "priority",
    "preemptible",
    "each",
    "runs_on",
    "leaving",
    "selector",
    "tolerates",
    "labels",
    "annotations",
    "topology",
    "subgroups",
    "started",
    "preemption_delay",
    "user",
    "spec",
)
_EACH_KEYS = ("gpu", "cpu", "memory", "fraction", "gpu_memory", "devices")
_LEVELS = ("required", "preferred")
_SUBGROUP_KEYS = ("members", "minimum", "parent", *_LEVELS, "each", "minimum_subgroups")


def is_short(document: object) -> bool:
    """Return whether a document is a scenario in the short form."""
    return isinstance(document, Mapping) and "cluster" in document and "apiVersion" not in document


def expand(document: Values, place: str) -> list[Manifest]:
    """Return the Kubernetes objects for the cluster, the queues and the groups of a scenario.

    Raises: InputError that names the key.
    """
    fields(document, KEYS, place)
    cluster = fields(document.get("cluster"), ("nodes", "topologies", "objects"), f"{place}: cluster")
    out: list[Manifest] = []
    for name, values in mapping(cluster.get("nodes"), f"{place}: cluster.nodes").items():
        where = f"{place}: cluster.nodes.{name}"
        out += [node(one, fields(values, NODE_KEYS, where), where) for one in spread(name, f"{place}: cluster.nodes")]
    more = cluster.get("objects") or ()
    if not isinstance(more, list | tuple):
        raise InputError(f"{place}: cluster.objects: found {shown(more)}, expected a list of Kubernetes objects")
    nodes = node_names([*out, *more])
    for name, levels in mapping(cluster.get("topologies"), f"{place}: cluster.topologies").items():
        out.append(topology(name, texts(levels, f"{place}: cluster.topologies.{name}")))
    for at, (name, values) in enumerate(mapping(document.get("queues"), f"{place}: queues").items()):
        where = f"{place}: queues.{name}"
        out.append(_queue(name, fields(values, _QUEUE_KEYS, where), at, where))
    groups = mapping(document.get("groups"), f"{place}: groups")
    leaves = _leaves(mapping(document.get("queues"), f"{place}: queues"))
    priorities: set[int] = set()
    for at, (name, values) in enumerate(groups.items()):
        where = f"{place}: groups.{name}"
        out += _Group(name, _group_fields(values, where), at, leaves, where, priorities).objects(nodes)
    out += [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"priority-{value}"},
            "value": value,
        }
        for value in sorted(priorities)
    ]
    return out + list(more)


# -------------------------------------------------------------------------------------------------------------- queues


def _queue(name: str, values: Values, at: int, place: str) -> Manifest:
    quota = _bounds(values.get("quota"), 0, f"{place}.quota")
    limit = _bounds(values.get("limit"), -1, f"{place}.limit")
    weight = _bounds(values.get("weight"), 1, f"{place}.weight", unbounded=1)
    resources: Manifest = {
        resource: {"quota": quota[resource], "limit": limit[resource], "overQuotaWeight": weight[resource]}
        for resource in ("gpu", "cpu", "memory")
    }
    if values.get("models") is not None:
        resources["models"] = _models(values["models"], f"{place}.models")
    if values.get("per_user") is not None:
        resources["perUser"] = _user_limits(values["per_user"], f"{place}.per_user")
    spec: Manifest = {"resources": resources}
    optional = {
        "parentQueue": values.get("parent"),
        "priority": values.get("priority"),
        "preemptMinRuntime": values.get("preempt_min_runtime"),
        "reclaimMinRuntime": values.get("reclaim_min_runtime"),
        "maxRuntime": values.get("max_runtime"),
        "defaultRuntime": values.get("default_runtime"),
    }
    spec |= {key: value for key, value in optional.items() if value is not None}
    if values.get("schedules") is not None:
        spec["schedules"] = _schedules(values["schedules"], f"{place}.schedules")
    budgets = _budgets(values.get("budgets"), f"{place}.budgets")
    if budgets:
        spec["budgets"] = [budget for budget, _ in budgets]
    written = [status for _, status in budgets if status]
    # A minute apart, as ties between queues are decided by age: the order
    # in the file is then the order of the scenario.
    metadata: Manifest = {"name": name, "uid": name, "creationTimestamp": times.instant_text(NOW - 7200 + 60 * at)}
    if values.get("labels") is not None:
        metadata["labels"] = {
            label: as_text(text) for label, text in mapping(values["labels"], f"{place}.labels").items()
        }
    return {
        "apiVersion": names.QUEUE_VERSION,
        "kind": "Queue",
        **({"status": {"budgets": written}} if written else {}),
        "metadata": metadata,
        "spec": spec,
    }


def _models(value: object, place: str) -> Manifest:
    """Return the bounds of a queue by model of GPU, each a quota and a limit; a plain number is a limit."""
    made: Manifest = {}
    for model, bounds in mapping(value, place).items():
        where = f"{place}.{model}"
        made[model] = {}
        for key, number in fields(
            {"limit": bounds} if is_number(bounds) else bounds, ("quota", "limit"), where
        ).items():
            if not is_number(number):
                raise InputError(f"{where}.{key}: found {shown(number)}, expected a number of GPUs")
            made[model][key] = number
    return made


def _user_limits(value: object, place: str) -> Manifest:
    """Return what each user may hold of the resources that are named; a plain number is one of GPUs."""
    most = _bounds(value, names.UNLIMITED, place)
    return {resource: {"limit": most[resource]} for resource in (value if isinstance(value, Mapping) else ("gpu",))}


_BUDGET_KEYS = {
    "amount": "amount",
    "period": "period",
    "zone": "timeZone",
    "from": "from",
    "until": "until",
    "carry_over": "carryOver",
    "enforce": "enforce",
    "refund": "refund",
    "slice": "slice",
}


def _budgets(value: object, place: str) -> list[tuple[Manifest, Manifest]]:
    """Return the budgets of a queue, each with what its status says: ``spent`` GPU-hours, and those of ``users``."""
    made: list[tuple[Manifest, Manifest]] = []
    for name, each in mapping({} if value is None else value, place).items():
        values = fields(each, (*_BUDGET_KEYS, "weights", "spent", "carried", "users"), f"{place}.{name}")
        budget: Manifest = {"name": name}
        budget |= {field: values[key] for key, field in _BUDGET_KEYS.items() if values.get(key) is not None}
        if values.get("weights") is not None:
            weights = mapping(values["weights"], f"{place}.{name}.weights")
            budget["weights"] = [{"model": model, "weight": weight} for model, weight in weights.items()]
        status: Manifest = {}
        if values.get("spent") is not None:
            now = times.instant_text(NOW)
            status = {"name": name, "since": now, "at": now, "spent": values["spent"]}
            status |= {"carried": values["carried"]} if values.get("carried") is not None else {}
            status |= {"userHours": values["users"]} if values.get("users") is not None else {}
        made.append((budget, status))
    return made


_SCHEDULE_KEYS = ("start", "zone", "duration", "quota", "limit", "weight", "models", "per_user", "on_close", "notice")


def _schedules(value: object, place: str) -> list[Manifest]:
    """Return the windows of a queue, each with the amounts that it changes."""
    made = []
    for name, windows in mapping(value, place).items():
        where = f"{place}.{name}"
        values = fields(windows, _SCHEDULE_KEYS, where)
        optional = {"timeZone": values.get("zone"), "onClose": values.get("on_close"), "notice": values.get("notice")}
        resources: Manifest = {}
        if values.get("models") is not None:
            resources["models"] = _models(values["models"], f"{where}.models")
        if values.get("per_user") is not None:
            resources["perUser"] = _user_limits(values["per_user"], f"{where}.per_user")
        for key, field in (("quota", "quota"), ("limit", "limit"), ("weight", "overQuotaWeight")):
            if values.get(key) is not None:
                given = {"gpu": None} if is_number(values[key]) else values[key]
                amounts = _bounds(values[key], 0, f"{where}.{key}", unbounded=1 if key == "weight" else -1)
                # Only what is written: a window changes the amounts that it
                # names, and all others stay as outside of it.
                for resource in given if isinstance(given, Mapping) else ():
                    resources.setdefault(resource, {})[field] = amounts[resource]
        entry: Manifest = {"name": name, "start": values.get("start"), "duration": values.get("duration")}
        entry |= {key: each for key, each in optional.items() if each is not None}
        made.append(entry | ({"resources": resources} if resources else {}))
    return made


def _bounds(value: object, gpu: float, place: str, *, unbounded: float = -1) -> dict[str, float]:
    """Return one number for each resource: a plain number means GPUs, CPU is in cores and memory in GB."""
    if is_number(value):
        value = {"gpu": value}
    elif value is not None and not isinstance(value, Mapping):
        raise InputError(
            f"{place}: found {shown(value)}, expected a number of GPUs, or numbers by resource: {{gpu: 4}}"
        )
    given = fields(value, ("gpu", "cpu", "memory"), place)
    scale = {"gpu": 1, "cpu": 1000, "memory": 1000}
    out = {"gpu": gpu, "cpu": unbounded, "memory": unbounded}
    for resource, number in given.items():
        if not is_number(number):
            raise InputError(f"{place}.{resource}: found {shown(number)}, expected a number")
        # A weight (unbounded is 1) has no unit, and -1 is unlimited in every unit.
        out[resource] = number if number < 0 or unbounded >= 0 else number * scale[resource]
    return out


def _leaves(queues: Values) -> list[str]:
    parents = [values.get("parent") for values in queues.values() if isinstance(values, Mapping)]
    return [name for name in queues if name not in parents]


# -------------------------------------------------------------------------------------------------------------- groups


def _group_fields(value: object, place: str) -> Values:
    """Return the keys of a group. Its topology levels are below ``topology``; only sub-groups have them as own keys."""
    values = mapping(value, place)
    for key in _LEVELS:
        if key in values:
            level = values[key] if isinstance(values[key], str) else "LEVEL"
            raise InputError(f"{place}: found key {shown(key)}; a group has it as topology: {{{key}: {level}}}")
    return fields(values, _GROUP_KEYS, place)


def _topology_of(value: object, place: str) -> Values:
    """Return the topology levels that a group requests.

    Raises: InputError.
    """
    if value is not None and not isinstance(value, Mapping):
        level = value if isinstance(value, str) else "LEVEL"
        wanted = f"{{required: {level}}} or {{preferred: {level}}}"
        raise InputError(f"{place}: found {shown(value)}, expected {wanted}")
    values = fields(value, ("topology", "name", *_LEVELS), place)
    for key, text in values.items():
        if not isinstance(text, str | None):
            raise InputError(f"{place}.{key}: found {shown(text)}, expected a text")
    return values


class _Group:
    """One group of the short form."""

    def __init__(
        self, name: str, values: Values, at: int, leaves: Sequence[str], place: str, priorities: set[int]
    ) -> None:
        self._name = name
        self._values = values
        self._place = place
        self._created = times.instant_text(NOW - 3600 + 60 * at)
        queue = values.get("queue", leaves[0] if len(leaves) == 1 else None)
        if not isinstance(queue, str):
            raise InputError(f"{place}.queue: found {shown(queue)}, expected the name of a queue")
        self._queue = queue
        self._priority = whole(values, "priority", 50, place)
        priorities.add(self._priority)
        self._nodes = list(self._nodes_named())
        self._leaving = whole(values, "leaving", 0, place)

    def objects(self, nodes: Sequence[str]) -> list[Manifest]:
        """Return the pod group and its pods, which run on some of ``nodes``.

        Raises: InputError.
        """
        members = self._members()
        missing = sorted(set(self._nodes).difference(nodes))
        if missing:
            wanted = suggestion(missing[0], list(nodes)) if nodes else "cluster.nodes has none"
            raise InputError(f"{self._place}.runs_on: found node {shown(missing[0])}; {wanted}")
        if len(self._nodes) > len(members):
            found = f"{len(self._nodes)} pods that run"
            raise InputError(f"{self._place}.runs_on: found {found}, expected no more than its members, {len(members)}")
        unknown = unknown_of_pod_spec(self._values.get("spec"))
        if unknown:
            raise InputError(f"{self._place}.spec: found {unknown[0]}, expected fields that the spec of a pod has")
        return [self._pod_group(members), *(self._pod(at, *member) for at, member in enumerate(members))]

    def _members(self) -> list[tuple[str, Values]]:
        """Return the sub-group ("" without one) and the request of each pod."""
        each = mapping(self._values.get("each"), f"{self._place}.each")
        if self._values.get("subgroups") is None:
            return [("", each)] * whole(self._values, "members", 1, self._place)
        if "members" in self._values:
            raise InputError(f"{self._place}.members: found beside subgroups, expected members in each sub-group")
        out: list[tuple[str, Values]] = []
        for name, values in self._subgroups():
            where = f"{self._place}.subgroups.{name}"
            out += [(name, mapping(values.get("each"), f"{where}.each") or each)] * whole(values, "members", 0, where)
        return out

    def _subgroups(self) -> Iterator[tuple[str, Values]]:
        for name, values in mapping(self._values.get("subgroups"), f"{self._place}.subgroups").items():
            yield name, fields(values, _SUBGROUP_KEYS, f"{self._place}.subgroups.{name}")

    def _nodes_named(self) -> Iterator[str]:
        on = self._values.get("runs_on")
        match on:
            case None:
                return
            case str():
                yield from [on] * len(self._members())
            case Mapping():
                for node in on:
                    yield from [str(node)] * whole(on, node, 0, f"{self._place}.runs_on")
            case list() | tuple():
                yield from map(str, on)
            case _:
                raise InputError(
                    f"{self._place}.runs_on: found {shown(on)}, expected a node, a list of nodes or pods by node"
                )

    def _started(self) -> float:
        return seconds(self._values.get("started", "10m"), f"{self._place}.started")

    def _pod_group(self, members: Sequence[tuple[str, Values]]) -> Manifest:
        values = self._values
        annotations = self._written("annotations")
        if "user" in values:
            annotations[names.NOTED_USER] = as_text(values["user"])
        if self._nodes:
            annotations[names.LAST_START] = times.instant_text(NOW - self._started())
        spec: Manifest = {"queue": self._queue, "priorityClassName": f"priority-{self._priority}"}
        if values.get("subgroups") is None:
            spec["minMember"] = whole(values, "minimum", len(members), self._place)
        else:
            spec["subGroups"] = [
                _subgroup(name, each, f"{self._place}.subgroups.{name}") for name, each in self._subgroups()
            ]
            if "minimum" in values:
                spec["minSubGroup"] = whole(values, "minimum", 0, self._place)
        if "preemptible" in values:
            preemptible = boolean(values, "preemptible", self._place, default=True)
            spec["preemptibility"] = names.PREEMPTIBLE if preemptible else names.NON_PREEMPTIBLE
        if "preemption_delay" in values:
            spec["preemptionDelay"] = values["preemption_delay"]
        if "topology" in values:
            spec["topologyConstraint"] = _constraint(_topology_of(values["topology"], f"{self._place}.topology"))
        return {
            "apiVersion": names.POD_GROUP_VERSION,
            "kind": "PodGroup",
            "metadata": {
                "name": self._name,
                "namespace": names.DEFAULT_NAMESPACE,
                "uid": self._name,
                "creationTimestamp": self._created,
                "labels": self._written("labels"),
                "annotations": annotations,
            },
            "spec": spec,
        }

    def _written(self, key: str) -> dict[str, str]:
        """Return the labels or annotations of a group, which apply to its pod group and to its pods."""
        return {name: as_text(value) for name, value in mapping(self._values.get(key), f"{self._place}.{key}").items()}

    def _pod(self, at: int, subgroup: str, each: Values) -> Manifest:
        requests, annotations = _requests(each, f"{self._place}.each")
        labels = self._written("labels")
        if subgroup:
            labels[names.SUBGROUP] = subgroup
        metadata: Manifest = {
            "name": f"{self._name}-{at}",
            "namespace": names.DEFAULT_NAMESPACE,
            "uid": f"{self._name}-{at}",
            "creationTimestamp": self._created,
            "labels": labels,
            "annotations": {**self._written("annotations"), names.POD_GROUP: self._name, **annotations},
        }
        spec: Manifest = {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            "nodeSelector": self._values.get("selector") or {},
            "tolerations": [
                _toleration(text) for text in texts(self._values.get("tolerates"), f"{self._place}.tolerates")
            ],
            **mapping(self._values.get("spec"), f"{self._place}.spec"),
        }
        status: Manifest = {"phase": "Pending"}
        if at < len(self._nodes):
            spec["nodeName"] = self._nodes[at]
            status["phase"] = "Running"
            # A group that started long ago has pods that are as old.
            metadata["creationTimestamp"] = min(self._created, times.instant_text(NOW - self._started()))
            if names.GPU_FRACTION in annotations or names.GPU_MEMORY in annotations:
                # A running pod with a share must name its device; one for the
                # whole group unless the scenario says otherwise.
                labels.setdefault(names.GPU_GROUP, f"device-of-{self._name}")
        if at < self._leaving:
            metadata["deletionTimestamp"] = times.instant_text(NOW)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _subgroup(name: str, values: Values, place: str) -> Manifest:
    out: Manifest = {"name": name}
    if "minimum_subgroups" in values:
        out["minSubGroup"] = whole(values, "minimum_subgroups", 0, place)
    elif values.get("members"):
        out["minMember"] = whole(values, "minimum", values["members"], place)
    if "parent" in values:
        out["parent"] = values["parent"]
    if "required" in values or "preferred" in values:
        out["topologyConstraint"] = _constraint({"topology": "default", **values})
    return out


def _constraint(values: Values) -> Manifest:
    return {
        "topology": values.get("topology", values.get("name", "default")),
        "requiredTopologyLevel": values.get("required", ""),
        "preferredTopologyLevel": values.get("preferred", ""),
    }


def _toleration(text: str) -> Manifest:
    head, _, effect = text.partition(":")
    key, equals, value = head.partition("=")
    return {"key": key, "operator": "Equal" if equals else "Exists", "value": value, "effect": effect}


def _requests(each: Values, place: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the requests of the one container and the annotations of its pod."""
    requests: dict[str, str] = {}
    annotations: dict[str, str] = {}
    marks = {"fraction": names.GPU_FRACTION, "gpu_memory": names.GPU_MEMORY, "devices": names.GPU_FRACTION_DEVICES}
    for key, value in each.items():
        if key in marks:
            if key == "fraction" and not gpu_sharing.is_share(str(value)):
                wanted = f"a number from {gpu_sharing.LEAST_SHARE:g} to 1; whole GPUs are written gpu: 2"
                raise InputError(f"{place}.fraction: found {shown(value)}, expected {wanted}")
            annotations[marks[key]] = str(value)
        elif key == "gpu":
            # Kubernetes rejects fractions of an extended resource; a GPU is shared by an annotation.
            if isinstance(value, float) and not value.is_integer():
                share = f"fraction: {value} to share one" if 0 < value < 1 else "fraction: 0.5, say, to share one"
                raise InputError(f"{place}.gpu: found {value}, expected whole GPUs; write {share}")
            if not str(value).replace(".0", "").isdecimal():
                raise InputError(f"{place}.gpu: found {shown(value)}, expected a whole number, 0 or more")
            requests[names.NVIDIA_GPU] = str(value)
        elif key in {"cpu", "memory"} or "/" in key:
            requests[key] = str(value)
        else:
            fields({key: value}, _EACH_KEYS, place)
    return requests, annotations
