"""What a look at a cluster brought: manifests by list, rights that are missing, the clock; and the programs in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import ENDED
from kai.lenient import has_condition, list_of, mapping_of, text_of
from kai.numerals import truth

Manifest = Mapping[str, Any]

PART_OF: Final = "app.kubernetes.io/part-of"
ROLES: Final = (
    *("scheduler", "binder", "podgrouper", "podgroup-controller", "queue-controller", "node-scale-adjuster"),
    "admission",
)
TOGETHER: Final = ROLES[:-1]


@attrs.frozen(kw_only=True)
class Right:
    """Something that an account should be allowed to do."""

    role: str
    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{place}"


@attrs.frozen(kw_only=True)
class Program:
    """A pod that runs kai."""

    namespace: str
    pod: str
    owner: str
    """The name of what made it, less the hash of a ReplicaSet."""
    account: str
    roles: tuple[str, ...]
    flags: Mapping[str, str]
    is_ready: bool

    @property
    def pool(self) -> tuple[str, str]:
        """The scheduler name and the node pool that a scheduler in it serves."""
        return self.flags.get("scheduler-name", "kai-scheduler"), self.flags.get("partition-label-value", "")

    @property
    def may_serve_another_pool(self) -> bool:
        """Whether the pool may be told by a SchedulingShard in its file, which is not looked at."""
        files = {"scheduler-conf", "config"} & self.flags.keys()
        return "scheduler" in self.roles and bool(files) and "partition-label-value" not in self.flags

    @property
    def elects(self) -> bool:
        """Whether its replicas agree on one that works."""
        text = self.flags.get("leader-elect", "false")
        return not text or truth(text) is True


@attrs.frozen(kw_only=True)
class Seen:
    """A look at a cluster."""

    now: float
    """The clock of the machine that looked."""
    version: Mapping[str, Any] = EMPTY
    lists: Mapping[str, tuple[Manifest, ...]] = EMPTY
    """The objects by list: nodes, pods, queues and so on; a kind that is not served is an empty list."""
    unread: Mapping[str, str] = EMPTY
    """The lists that could not be read, and why."""
    missing: Mapping[str, tuple[Right, ...]] = EMPTY
    """By account ("" for the one that looks), the rights that it lacks."""
    asked: Mapping[str, int] = EMPTY
    """By account, how many rights were asked about."""
    foreign_module: str = ""
    """Which distribution besides ours claims the module ``kai``; "" for none."""

    def all(self, name: str) -> tuple[Manifest, ...]:
        """Return a list; an empty one if it could not be read."""
        return self.lists.get(name, ())

    def programs(self) -> tuple[Program, ...]:
        """Return the pods that run kai and have not ended."""
        return tuple(_programs(self.all("pods")))


def name_of(manifest: Manifest) -> str:
    """Return the name of an object."""
    return text_of(manifest, "metadata", "name")


def key_of(manifest: Manifest) -> str:
    """Return ``namespace/name`` of an object, or its name where it has no namespace."""
    namespace = text_of(manifest, "metadata", "namespace")
    return f"{namespace}/{name_of(manifest)}" if namespace else name_of(manifest)


def labels_of(manifest: Manifest) -> Mapping[str, str]:
    """Return the labels of an object."""
    return mapping_of(manifest, "metadata", "labels")


def annotations_of(manifest: Manifest) -> Mapping[str, Any]:
    """Return the annotations of an object."""
    return mapping_of(manifest, "metadata", "annotations")


def _programs(pods: Iterable[Manifest]) -> Iterator[Program]:
    for pod in pods:
        if text_of(pod, "status", "phase") in ENDED:
            continue
        for container in list_of(pod, "spec", "containers"):
            words = [*list_of(container, "command"), *list_of(container, "args")]
            if labels_of(pod).get(PART_OF) != "kai" or "run" not in words:
                continue
            words = words[words.index("run") + 1 :]
            yield Program(
                namespace=text_of(pod, "metadata", "namespace"),
                pod=name_of(pod),
                owner=_owner(pod),
                account=text_of(pod, "spec", "serviceAccountName") or "default",
                roles=tuple(word for word in words if word in ROLES) or TOGETHER,
                flags=dict(_flags(words)),
                is_ready=has_condition(pod, "Ready"),
            )


def _owner(pod: Manifest) -> str:
    for owner in list_of(pod, "metadata", "ownerReferences"):
        name = text_of(owner, "name")
        return name.rpartition("-")[0] if text_of(owner, "kind") == "ReplicaSet" else name
    return name_of(pod)


def _flags(words: Sequence[object]) -> Iterator[tuple[str, str]]:
    """Yield flags in Go's form: ``--name=value``, or ``--name value`` as KAI-Scheduler's operator writes them."""
    for word, after in itertools.zip_longest(words, words[1:]):
        if isinstance(word, str) and word.startswith("-"):
            name, is_whole, value = word.lstrip("-").partition("=")
            if not is_whole and isinstance(after, str) and not after.startswith("-") and after not in ROLES:
                value = after
            yield name, value


LEASES: Final[Mapping[str, str]] = {
    "binder": "2ad35f9c.kai.scheduler",
    "podgrouper": "54dff599.kai.scheduler",
    "podgroup-controller": "o1x22tjj.kai.scheduler",
    "queue-controller": "ov3xj497.kai.scheduler",
    "node-scale-adjuster": "7n7h49uc.kai.scheduler",
    "admission": "ojptxr84.kai.scheduler",
}
"""The lease of each role that runs alone; the scheduler's is named after it and its node pool."""


def lease_of(program: Program) -> str:
    """Return the name of the lease that a program holds or waits for."""
    if "scheduler" not in program.roles:
        return LEASES[program.roles[0]]
    scheduler, pool = program.pool
    return f"{scheduler}-{pool}" if pool else scheduler
