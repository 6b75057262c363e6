"""Command lines of KAI-Scheduler's Deployments must start kai: each of its flags, program by program.

The tables are its options at commit d5bc503a, with the values that its programs have without them. Left out is what
belongs to programs without a counterpart here: the operator, and the exporter of NUMA placements.
"""

import pytest

from kai.basics.errors import ConfigError
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags

CLIENT = {"qps": "50", "burst": "300"}
LEADER = {"leader-elect": "false"}
ZAP = {
    "zap-devel": "true",
    "zap-encoder": "console",
    "zap-log-level": "info",
    "zap-stacktrace-level": "error",
    "zap-time-encoding": "iso8601",
    "kubeconfig": "",
}
ENDPOINTS = {"metrics-bind-address": ":8080", "health-probe-bind-address": ":8081"}
NAME = {"scheduler-name": "kai-scheduler"}

PEER = {
    "scheduler": CLIENT
    | LEADER
    | NAME
    | {
        "namespace": "kai-scheduler",
        "metrics-namespace": "kai",
        "resource-reservation-app-label": "kai-resource-reservation",
        "restrict-node-scheduling": "false",
        "nodepool-label-key": "kai.scheduler/node-pool",
        "queue-label-key": "kai.scheduler/queue",
        "partition-label-value": "",
        "scheduler-conf": "",
        "schedule-period": "1s",
        "version": "true",
        "listen-address": ":8080",
        "enable-profiler": "false",
        "profiler-port": "8182",
        "pyroscope-address": "",
        "pyroscope-mutex-profiler-rate": "5",
        "pyroscope-block-profiler-rate": "5",
        "v": "3",
        "log-json": "false",
        "log-flush-frequency": "5s",
        "max-consolidation-preemptees": "16",
        "detailed-fit-errors": "false",
        "update-pod-eviction-condition": "false",
        "schedule-csi-storage": "false",
        "use-scheduling-signatures": "true",
        "full-hierarchy-fairness": "true",
        "allow-consolidating-reclaim": "true",
        "num-of-status-recording-workers": "5",
        "default-staleness-grace-period": "1m0s",
        "stuck-in-releasing-threshold": "2m0s",
        "plugin-server-port": "8081",
        "cpu-worker-node-label-key": "node-role.kubernetes.io/cpu-worker",
        "gpu-worker-node-label-key": "node-role.kubernetes.io/gpu-worker",
        "mig-worker-node-label-key": "node-role.kubernetes.io/mig-enabled",
        "feature-gates": "",
    },
    "binder": CLIENT
    | LEADER
    | ZAP
    | ENDPOINTS
    | NAME
    | {
        "resource-reservation-namespace": "kai-resource-reservation",
        "resource-reservation-service-account": "kai-resource-reservation",
        "resource-reservation-app-label": "kai-resource-reservation",
        "resource-reservation-pod-image": "",
        "resource-reservation-allocation-timeout": "40",
        "resource-reservation-pod-resources": "",
        "resource-reservation-pod-security-context": "",
        "resource-reservation-container-security-context": "",
        "scale-adjust-namespace": "kai-scale-adjust",
        "max-concurrent-reconciles": "10",
        "rate-limiter-base-delay": "1",
        "rate-limiter-max-delay": "60",
        "fake-gpu-nodes": "false",
        "plugins": "",
        "runtime-class-name": "",
        "feature-gates": "",
    },
    "podgrouper": CLIENT
    | LEADER
    | ZAP
    | ENDPOINTS
    | NAME
    | {
        "nodepool-label-key": "kai.scheduler/node-pool",
        "queue-label-key": "kai.scheduler/queue",
        "max-concurrent-reconciles": "10",
        "search-legacy-pg": "true",
        "knative-gang-schedule": "true",
        "generic-karta-fallback": "true",
        "default-priorities-configmap-name": "",
        "default-priorities-configmap-namespace": "",
        "pod-label-selector": "",
        "namespace-label-selector": "",
    },
    "podgroup-controller": CLIENT
    | LEADER
    | ZAP
    | ENDPOINTS
    | NAME
    | {
        "skip-controller-name-validation": "false",
        "max-concurrent-reconciles": "10",
        "log-level": "3",
        "enable-podgroup-webhook": "true",
    },
    "queue-controller": CLIENT
    | LEADER
    | ZAP
    | {
        "enable-webhook": "true",
        "skip-controller-name-validation": "false",
        "enable-quota-validation": "false",
        "metrics-listen-address": ":8080",
        "metrics-namespace": "kai",
        "queue-label-to-metric-label": "",
        "queue-label-to-default-metric-value": "",
    },
    "node-scale-adjuster": CLIENT
    | LEADER
    | ZAP
    | NAME
    | {
        "scaling-pod-image": "",
        "scale-adjust-namespace": "kai-scale-adjust",
        "scaling-pod-app-label": "scaling-pod",
        "scaling-pod-service-account": "scaling-pod",
        "gpu-memory-to-fraction-ratio": "0.1",
    },
    "admission": CLIENT
    | LEADER
    | ZAP
    | ENDPOINTS
    | NAME
    | {
        "rate-limiter-base-delay": "1",
        "rate-limiter-max-delay": "60",
        "webhook-addr": "9443",
        "fake-gpu-nodes": "false",
        "gpu-sharing-enabled": "false",
        "hami-core-enabled": "false",
        "block-nvidia-visible-devices": "false",
        "gpu-fraction-runtime-class-name": "nvidia",
        "gpu-pod-runtime-class-name": "",
    },
}
# Without these flags kai does otherwise: it listens on its own machine only, and finds its namespace by itself.
OTHERWISE = {*ENDPOINTS, "listen-address", "metrics-listen-address", "namespace", "zap-devel", "zap-encoder"}
OTHERWISE |= {"zap-stacktrace-level", "zap-time-encoding"}
OURS = {
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-retry-period",
    "config",
    "context",
    "server",
    "otlp-endpoint",
    "evict-by",
    "bind-events",
    "hand-over",
    "bind-requests",
    "pod-groups",
    "max-pending-shapes-per-namespace",
    "max-pending-pods-per-namespace",
    "queue-access",
    "name-aggressors",
    "decision-log",
    "decision-log-megabytes",
    "decision-log-files",
    "shadow",
    "shadow-patience",
    "dashboard",
    "dashboard-auth",
    "dashboard-cert-dir",
}
OURS |= {"webhook-cert-dir", "webhook-certificate-lifetime", "webhook-secret"}
EACH = [(role, name) for role, flags in PEER.items() for name in flags]


def read(*words):
    return read_flags(words, FLAGS, ROLES, TOGETHER)


@pytest.mark.parametrize(("role", "name"), EACH)
def test_each_role_accepts_kai_schedulers_flags_with_their_defaults(role, name):
    value = PEER[role][name]
    given = read(role, f"--{name}={value}")
    assert name in given.named
    if name not in OTHERWISE:
        assert given.values[name] == FLAGS[name].default


@pytest.mark.parametrize("role", ROLES)
def test_flags_parse_alike_joined_and_apart(role):
    joined = [f"--{name}={value}" for name, value in PEER[role].items()]
    apart = [
        word
        for name, value in PEER[role].items()
        for word in ((f"--{name}={value}",) if value in {"true", "false"} else (f"--{name}", value))
    ]
    assert read(role, *joined).values == read(role, *apart).values


def test_every_flag_is_kai_schedulers_or_listed_as_ours():
    known = {name for flags in PEER.values() for name in flags}
    assert FLAGS.keys() - known == OURS


@pytest.mark.parametrize("role", ROLES)
def test_a_flag_that_nobody_has_stops_the_start(role):
    with pytest.raises(ConfigError, match="--leader-elekt: found an unknown flag, expected --leader-elect"):
        read(role, "--leader-elekt=true")


def test_inert_flags_are_all_kai_schedulers():
    quiet = {name for name, flag in FLAGS.items() if flag.inert}
    assert quiet <= {name for flags in PEER.values() for name in flags}
    assert {"qps", "enable-profiler"} <= quiet
    assert {"enable-webhook", "schedule-period", "fake-gpu-nodes"}.isdisjoint(quiet)
