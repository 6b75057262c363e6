"""Observations of a cluster: manifests by list, missing rights, the clock, and kai's programs.

Also the results of checks: findings with their severity and remedy, and verdicts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import ENDED
from kai.basics.parsing import has_condition, list_of, mapping_of, part_of, text_of, truth

Manifest = Mapping[str, Any]

LISTS: Final[Mapping[str, str]] = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "resourcequotas": "/api/v1/resourcequotas",
    "queues": "/apis/scheduling.run.ai/v2/queues",
    "podgroups": "/apis/scheduling.run.ai/v2alpha2/podgroups",
    "bindrequests": "/apis/scheduling.run.ai/v1alpha2/bindrequests",
    "configs": "/apis/kai.scheduler/v1/configs",
    "crds": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "deployments": "/apis/apps/v1/deployments",
    "leases": "/apis/coordination.k8s.io/v1/leases",
    "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
    "validating": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "mutating": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "policies": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "policybindings": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "runtimeclasses": "/apis/node.k8s.io/v1/runtimeclasses",
}
"""The API path of each list, by its name in checks."""
NOT_ALLOWED: Final = "not allowed"
"""The reason for an unread list when this account lacks the right to it."""

PART_OF: Final = "app.kubernetes.io/part-of"
ROLES: Final = (
    *("scheduler", "binder", "podgrouper", "podgroup-controller", "queue-controller", "node-scale-adjuster"),
    "admission",
)
TOGETHER: Final = ROLES[:-1]


@attrs.frozen(kw_only=True)
class Right:
    """A right that an account should have."""

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
    """The name of its owner, less the hash of a ReplicaSet."""
    account: str
    roles: tuple[str, ...]
    flags: Mapping[str, str]
    is_ready: bool
    restarts: int = 0
    waits_for: str = ""
    """The kubelet's reason why its container does not run, such as ``CrashLoopBackOff``."""
    ended_by: str = ""
    """How its container ended last: ``OOMKilled``, or ``Error, exit code 1``."""

    @property
    def pool(self) -> tuple[str, str]:
        """The scheduler name and the node pool of a scheduler in it."""
        return self.flags.get("scheduler-name", "kai-scheduler"), self.flags.get("partition-label-value", "")

    @property
    def may_serve_another_pool(self) -> bool:
        """Whether a SchedulingShard in a file of the pod, which is not read, may set another pool."""
        files = {"scheduler-conf", "config"} & self.flags.keys()
        return "scheduler" in self.roles and bool(files) and "partition-label-value" not in self.flags

    @property
    def elects(self) -> bool:
        """Whether its replicas elect a leader."""
        text = self.flags.get("leader-elect", "false")
        # A boolean flag without a value is true, as Go reads it.
        return not text or truth(text) is True


@attrs.frozen(kw_only=True)
class Seen:
    """The observations of one look at a cluster."""

    now: float
    """The clock of the machine that looked."""
    version: Mapping[str, Any] = EMPTY
    lists: Mapping[str, tuple[Manifest, ...]] = EMPTY
    """The objects by list: nodes, pods, queues and so on; a kind that is not served is an empty list."""
    unread: Mapping[str, str] = EMPTY
    """The lists that could not be read, and why."""
    missing: Mapping[str, tuple[Right, ...]] = EMPTY
    """The missing rights by account ("" for this client)."""
    asked: Mapping[str, int] = EMPTY
    """The number of reviewed rights by account."""
    foreign_module: str = ""
    """Another distribution that has the module ``kai``; "" for none."""

    def all(self, name: str) -> tuple[Manifest, ...]:
        """Return a list; an empty one if it could not be read."""
        return self.lists.get(name, ())

    def programs(self) -> tuple[Program, ...]:
        """Return the pods that run kai and have not ended."""
        return tuple(_programs(self.all("pods")))


def resource_of(name: str) -> str:
    """Return the resource of a list: ``queues.scheduling.run.ai``; "" for an unknown list."""
    path = LISTS.get(name, "")
    *_, group, _version, plural = path.split("/") if path else ("", "", "")
    return plural if path.startswith("/api/") else f"{plural}.{group}" if path else ""


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
            restarts, waits_for, ended_by = _troubles(pod, text_of(container, "name"))
            yield Program(
                namespace=text_of(pod, "metadata", "namespace"),
                pod=name_of(pod),
                owner=_owner(pod),
                account=text_of(pod, "spec", "serviceAccountName") or "default",
                roles=tuple(word for word in words if word in ROLES) or TOGETHER,
                flags=dict(_flags(words)),
                is_ready=has_condition(pod, "Ready"),
                restarts=restarts,
                waits_for=waits_for,
                ended_by=ended_by,
            )


def _troubles(pod: Manifest, container: str) -> tuple[int, str, str]:
    """Return the restarts of a container, why it does not run, and how it ended last."""
    for each in list_of(pod, "status", "containerStatuses"):
        if text_of(each, "name") == container:
            count = part_of(each, "restartCount")
            # Once a container runs again, only lastState tells how it ended.
            last = mapping_of(each, "lastState", "terminated") or mapping_of(each, "state", "terminated")
            ended, code = text_of(last, "reason"), part_of(last, "exitCode")
            # `Error` says no more than that the code is not 0.
            if ended == "Error" and isinstance(code, int):
                ended = f"exit code {code}"
            return count if isinstance(count, int) else 0, text_of(each, "state", "waiting", "reason"), ended
    return 0, "", ""


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
            # A role after a boolean flag is a role, as in `kai run --leader-elect scheduler`.
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
    """Return the name of the lease that a program competes for."""
    if "scheduler" not in program.roles:
        return LEASES[program.roles[0]]
    scheduler, pool = program.pool
    return f"{scheduler}-{pool}" if pool else scheduler


class Severity(StrEnum):
    """The severity of a finding. Only a failure makes the command exit with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    """The check could not be made."""


@attrs.frozen(kw_only=True)
class Finding:
    """One problem."""

    message: str
    help: str = ""
    severity: Severity = Severity.FAIL
    object: str = ""
    """The object in question, such as ``queue/team-a``."""
    found: str = ""
    expected: str = ""


@attrs.frozen(kw_only=True)
class Looked:
    """The result of one check function: the text if all is well, and the findings."""

    well: str
    findings: Sequence[Finding] = ()


@attrs.frozen(kw_only=True)
class Check:
    """One check."""

    code: str
    title: str
    look: Callable[[Seen], Looked]
    needs: tuple[str, ...] = ()
    """The lists that the check needs, by their names in `LISTS`."""


@attrs.frozen(kw_only=True)
class Diagnosis:
    """The outcome of one check."""

    check: Check
    severity: Severity
    message: str
    findings: tuple[Finding, ...] = ()


def run_check(check: Check, seen: Seen) -> Diagnosis:
    """Run a check; if a list that it needs is missing, skip it with the reason."""
    lacking = [name for name in check.needs if name in seen.unread]
    if lacking:
        message = f"{check.title}: not looked at: {'; '.join(_why(name, seen.unread[name]) for name in lacking)}"
        return Diagnosis(check=check, severity=Severity.SKIP, message=message)
    looked = check.look(seen)
    findings = tuple(looked.findings)
    worst = Severity.FAIL if any(each.severity is Severity.FAIL for each in findings) else Severity.WARN
    return Diagnosis(check=check, severity=worst if findings else Severity.OK, message=looked.well, findings=findings)


def _why(name: str, why: str) -> str:
    """Return why a list could not be read."""
    resource = resource_of(name)
    return f"it takes the right to list {resource}" if why == NOT_ALLOWED and resource else f"{name}: {why}"


def is_blind(verdicts: Iterable[Diagnosis]) -> bool:
    """Return whether nothing in the cluster could be judged: each check that needs a list was skipped."""
    severities = {each.severity for each in verdicts if each.check.needs}
    return severities == {Severity.SKIP}


def warning(message: str, help: str = "", *, about: str = "", found: str = "", expected: str = "") -> Finding:  # noqa: A002 - what the line is called that it fills
    """Return a finding that does not change the exit code."""
    return Finding(message=message, help=help, severity=Severity.WARN, object=about, found=found, expected=expected)


def failure(message: str, help: str = "", *, about: str = "", found: str = "", expected: str = "") -> Finding:  # noqa: A002 - as above
    """Return a finding that makes the command exit with 1."""
    return Finding(message=message, help=help, object=about, found=found, expected=expected)
