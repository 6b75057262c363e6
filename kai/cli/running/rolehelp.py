"""The output of ``kai run ROLE --help``: the flags of roles, their defaults and effects. Imports nothing heavy.

The descriptions are those of ``docs/reference/flags.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kai.cli.running.flagrows import INERT, OWN, ROLES, SHARED, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MEANINGS: Final[Mapping[str, str]] = {
    "leader-elect": "whether several replicas agree on one that works; the leases are KAI-Scheduler's",
    "leader-elect-lease-duration": (
        "how long others wait for a holder that does not renew its lease; a replica that was killed is "
        "missed for about as long"
    ),
    "leader-elect-renew-deadline": "how long after its last renewal a holder still works; less than the duration",
    "leader-elect-retry-period": "how often a holder renews its lease; the others look four times as often",
    "qps": (
        "accepted; requests are as many as the API server answers quickly: a window of requests under way "
        "narrows when answers take longer, and 429 is obeyed"
    ),
    "burst": "accepted; requests are as many as the API server answers quickly",
    "health-probe-bind-address": "where /livez, /healthz and /readyz are answered; 0 is nowhere",
    "kubeconfig": (
        "how to reach the cluster: this file, else those of $KUBECONFIG, read as one, else the pod's own account"
    ),
    "context": "which context of that file",
    "server": "another address than the file has",
    "otlp-endpoint": "where traces go, over HTTP, such as http://collector:4318; without it none are made",
    "log-json": "JSON even at a terminal; elsewhere it is always JSON",
    "v": "0 warnings, 1 to 3 decisions, 4 and more what led to them",
    "scheduler-name": "which pods are ours, by their schedulerName",
    "metrics-bind-address": "where /metrics is answered; 0 is nowhere",
    "nodepool-label-key": "the label that divides nodes, queues and pod groups among shards",
    "queue-label-key": "the label that names a workload's queue",
    "feature-gates": "accepted; what the API server serves is used",
    "resource-reservation-app-label": "the app label of reservation pods",
    "resource-reservation-namespace": "where reservation pods run; such a label counts for nothing elsewhere",
    "metrics-namespace": "what the names of metrics begin with",
    "max-concurrent-reconciles": "objects looked at at once",
    "rate-limiter-base-delay": (
        "binder: the pause after the first attempt that failed, in seconds; it doubles with each. Admission "
        "accepts it: nothing there is tried again"
    ),
    "rate-limiter-max-delay": (
        "binder: the longest pause between two attempts, in seconds. Admission accepts it: likewise"
    ),
    "fake-gpu-nodes": (
        "binder: nodes have no real GPUs, so reservation pods only sleep (for tests). Admission accepts it: "
        "KAI-Scheduler's, too, looks at it nowhere"
    ),
    "scale-adjust-namespace": "where scaling pods are. The binder accepts it: it binds whether or not one waits",
    "skip-controller-name-validation": "accepted; controllers have no names that could clash within a process",
    "webhook-cert-dir": (
        "the folder with tls.crt and tls.key. The two controllers serve webhooks, too, where they find them there"
    ),
    "enable-quota-validation": "whether a quota beyond the parent's is warned about",
    "zap-devel": "accepted; the two flags below set the log",
    "zap-encoder": "json is --log-json",
    "zap-log-level": "as --v, or a level by name",
    "zap-stacktrace-level": "accepted; a bug leaves its traceback in the log or a file, whatever the level",
    "zap-time-encoding": "accepted; times are in RFC 3339",
    "namespace": "where the lease is; without the flag the pod's own namespace ($POD_NAMESPACE), else kai-scheduler",
    "scheduler-conf": (
        "the file with actions and plugins, in KAI-Scheduler's form or in kai's, or a SchedulingShard; without "
        "it, all of them"
    ),
    "partition-label-value": (
        "the shard: objects whose node-pool label has this value; empty: objects without the label"
    ),
    "schedule-period": "the longest pause between two cycles while anything waits",
    "listen-address": "where /metrics is answered; 0 is nowhere",
    "plugin-server-port": "the port of /get-snapshot and /get-job-order, on the loopback interface only",
    "restrict-node-scheduling": "whether pods go only to nodes labelled for their type",
    "cpu-worker-node-label-key": "the label of nodes for pods without GPUs",
    "gpu-worker-node-label-key": "the label of nodes for pods with GPUs",
    "mig-worker-node-label-key": "the label of nodes whose GPUs are divided by MIG",
    "max-consolidation-preemptees": "how many groups a consolidation may move",
    "detailed-fit-errors": "whether a message has a line for each node",
    "update-pod-eviction-condition": "whether a victim first gets the condition DisruptionTarget",
    "schedule-csi-storage": (
        "whether the pods of a cycle share out the storage that drivers report as free; if not, each claim "
        "must fit by itself"
    ),
    "use-scheduling-signatures": "whether equal pods are tried once",
    "full-hierarchy-fairness": "whether fairness holds on every level of the tree",
    "allow-consolidating-reclaim": "whether a reclaim may move pods",
    "num-of-status-recording-workers": "writes of statuses at once",
    "default-staleness-grace-period": "how long a gang may run below its minimum; negative: for ever",
    "stuck-in-releasing-threshold": "when a pod that does not end is no longer counted on",
    "log-flush-frequency": "accepted; every line is written at once",
    "enable-profiler": (
        "accepted; it opens Go's profiler, unauthenticated. Where cycles spend their time is in traces and "
        "kai_phase_duration_seconds"
    ),
    "profiler-port": "accepted; as above",
    "pyroscope-address": "accepted; Pyroscope is sent profiles of Go programs. See Tracing",
    "pyroscope-mutex-profiler-rate": "accepted; as above",
    "pyroscope-block-profiler-rate": "accepted; as above",
    "version": "accepted; kai version shows them",
    "config": "ours. The same as --scheduler-conf, by the name that other commands have for it",
    "evict-by": (
        "ours. eviction: by the eviction API, so that disruption budgets hold; budget: delete where no "
        "budget covers the pod; delete: as KAI-Scheduler does"
    ),
    "bind-events": (
        "ours. Which object has the event that a pod is bound. pod: each pod, as with KAI-Scheduler; gang: the pods of "
        "a gang share one on their pod group; none: no event"
    ),
    "hand-over": "ours. Whether binder and scheduler in one process talk without the API server in between",
    "bind-requests": (
        "ours. needed: in one process, a pod that needs no preparation is bound without a bind request; "
        "always: as KAI-Scheduler does"
    ),
    "pod-groups": (
        "ours. needed: where one process has all roles, the pod group of a pod without an owner is written once "
        "something is said about it; always: as KAI-Scheduler does"
    ),
    "max-pending-shapes-per-namespace": (
        "ours. How many distinct shapes of pending pods of one namespace a cycle considers, 0 is all"
    ),
    "max-pending-pods-per-namespace": (
        "ours. How many pending pods of one namespace a cycle considers, 0 is all; jobs come whole"
    ),
    "name-aggressors": (
        "ours. Whether events about evictions name pod groups of other namespaces, as KAI-Scheduler's do"
    ),
    "queue-access": (
        "ours. Which namespaces may use a queue. open: all, as with KAI-Scheduler; required: the ones that the queue "
        "allows"
    ),
    "decision-log": (
        "ours. The file to which every decision is appended, one JSON object a line; without the flag none is"
    ),
    "decision-log-megabytes": "ours. At which size a new file of decisions is begun",
    "decision-log-files": "ours. How many files of decisions are kept, the newest included",
    "shadow": (
        "ours. Whether to write nothing at all, and to compare what is decided with what another scheduler does; for "
        "the role scheduler alone"
    ),
    "shadow-patience": (
        "ours. With --shadow: for how long the other scheduler may leave undone what is decided here, before that "
        "counts as a difference"
    ),
    "dashboard": (
        "ours. Where the dashboard and /api/v1 are answered; alone it is 127.0.0.1:8085, without the flag they are not"
    ),
    "dashboard-auth": (
        "ours. token asks readers for a token of the cluster and shows what its owner may list; local, the default, "
        "asks for none and is refused where others could reach the address"
    ),
    "dashboard-cert-dir": (
        "ours. The folder with tls.crt and tls.key with which the dashboard is encrypted; they are read again when "
        "they change"
    ),
    "resource-reservation-service-account": "as whom they run",
    "resource-reservation-pod-image": "their image; without the flag that of kai's own pod, with the command reserve",
    "resource-reservation-allocation-timeout": "seconds to wait for one to say which GPU it got",
    "resource-reservation-pod-resources": "JSON: their CPU and memory",
    "resource-reservation-pod-security-context": "JSON; deploy/ sets what its namespace demands",
    "resource-reservation-container-security-context": "JSON; likewise",
    "plugins": "JSON: which steps a bind takes, and their arguments",
    "runtime-class-name": "the runtime class of reservation pods",
    "search-legacy-pg": "whether groups keep names of earlier releases",
    "knative-gang-schedule": "whether a Knative revision is one group",
    "generic-karta-fallback": "whether Karta objects describe custom kinds",
    "default-priorities-configmap-name": "the config map with defaults by kind",
    "default-priorities-configmap-namespace": "where that is",
    "pod-label-selector": "k=v,k=v: which pods are ours",
    "namespace-label-selector": "k=v,k=v: in which namespaces",
    "enable-podgroup-webhook": "whether it serves the webhooks when it has a certificate",
    "log-level": "as --v",
    "enable-webhook": "whether it serves the webhooks when it has a certificate",
    "metrics-listen-address": "where /metrics is answered; 0 is nowhere",
    "queue-label-to-metric-label": "k=v,k=v: labels of queues that become labels of metrics",
    "queue-label-to-default-metric-value": "k=v,k=v: what those are for queues without them",
    "scaling-pod-image": "the image of scaling pods; without the flag that of kai's own pod",
    "scaling-pod-app-label": "their app label",
    "scaling-pod-service-account": "as whom they run",
    "gpu-memory-to-fraction-ratio": "how much of a GPU a pod counts that asks for memory",
    "webhook-addr": "the port of the webhooks",
    "webhook-certificate-lifetime": (
        "how long such a certificate lasts; a third of it before the end, the next one is made"
    ),
    "webhook-secret": (
        "the Secret in which kai keeps a certificate that it makes itself; empty: the certificate comes from"
        " --webhook-cert-dir"
    ),
    "gpu-sharing-enabled": "whether pods may share GPUs; deploy/ sets it",
    "hami-core-enabled": "whether memory of shared GPUs is limited by HAMi",
    "block-nvidia-visible-devices": "whether pods without GPUs are kept from seeing any",
    "gpu-fraction-runtime-class-name": "the runtime class of pods that share GPUs and name none; empty: none",
    "gpu-pod-runtime-class-name": "its older name",
}


_WIDEST: Final = 100
_COLUMN: Final = 30


def help_of(roles: Sequence[str], width: int = _WIDEST) -> str:
    """Return the help of roles: first the flags of one role each, then shared flags."""
    out = click.HelpFormatter(width=min(width, _WIDEST))
    out.write_usage("kai run", f"{' '.join(roles)} [FLAG...]")
    for role in roles:
        with out.section(f"Flags of {role}"):
            out.write_dl(list(_lines(OWN[role])), col_max=_COLUMN)
    shared = [row for takers, rows in SHARED.items() if not set(takers).isdisjoint(roles) for row in rows]
    with out.section("Flags of several roles"):
        out.write_dl(list(_lines(shared)), col_max=_COLUMN)
    names = [name for name, *_ in (*shared, *(row for role in roles for row in OWN[role]))]
    idle = [(f"--{name}", INERT[name]) for name in names if name in INERT]
    if idle:
        with out.section("Accepted without effect, because"):
            out.write_dl(idle, col_max=_COLUMN)
    return out.getvalue().rstrip("\n")


def roles_in(words: Sequence[str]) -> tuple[str, ...]:
    """Return the roles that a command line names, each once, in its order."""
    return tuple(dict.fromkeys(word for word in words if word in ROLES))


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    for name, kind, default in rows:
        if name not in INERT:
            shown = _shown(kind, default)
            yield f"--{name}", MEANINGS[name] + (f"  [{shown}]" if shown else "")


def _shown(kind: str, default: object) -> str:
    """Return a default for the help text; "" for kinds that show none."""
    if kind == "truth":
        return "true" if default else "false"
    if kind == "duration":
        return f"{default:g}s"
    if kind in {"json", "labels"}:
        return ""
    return str(default)
