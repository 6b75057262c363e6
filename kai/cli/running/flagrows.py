"""The flags of every role as plain rows: name, kind and default, under KAI-Scheduler's names. Imports nothing heavy.

`kai.cli.running.rolehelp` has their descriptions; `kai.cli.running.flags` builds the flags from these rows.

Source: the options of KAI-Scheduler's programs, cmd/*/app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kai.api import names
from kai.api.conventions.caps import NAMESPACE_PODS, NAMESPACE_SHAPES

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEDULER: Final = "scheduler"
BINDER: Final = "binder"
PODGROUPER: Final = "podgrouper"
POD_GROUPS: Final = "podgroup-controller"
QUEUES: Final = "queue-controller"
SCALE: Final = "node-scale-adjuster"
ADMISSION: Final = "admission"
ROLES: Final = (SCHEDULER, BINDER, PODGROUPER, POD_GROUPS, QUEUES, SCALE, ADMISSION)
TOGETHER: Final = ROLES[:-1]
"""The roles that one process runs by default. Admission is not one: it needs a certificate and ports of its own."""

_CONTROLLERS: Final = (BINDER, PODGROUPER, POD_GROUPS, QUEUES, SCALE, ADMISSION)
Row = tuple[str, str, object]

SHARED: Final[Mapping[tuple[str, ...], tuple[Row, ...]]] = {
    ROLES: (
        ("leader-elect", "truth", False),
        ("leader-elect-lease-duration", "duration", 15.0),
        ("leader-elect-renew-deadline", "duration", 10.0),
        ("leader-elect-retry-period", "duration", 2.0),
        ("qps", "number", 50),
        ("burst", "whole", 300),
        ("health-probe-bind-address", "text", ""),
        ("kubeconfig", "text", ""),
        ("context", "text", ""),
        ("server", "text", ""),
        ("otlp-endpoint", "text", ""),
        ("log-json", "truth", False),
        ("v", "verbosity", 3),
    ),
    (SCHEDULER, BINDER, PODGROUPER, POD_GROUPS, SCALE, ADMISSION): (("scheduler-name", "text", names.SCHEDULER_NAME),),
    (BINDER, PODGROUPER, POD_GROUPS, SCALE, ADMISSION): (("metrics-bind-address", "text", ""),),
    (SCHEDULER, PODGROUPER): (
        ("nodepool-label-key", "label-key", names.NODE_POOL),
        ("queue-label-key", "label-key", names.QUEUE),
    ),
    (SCHEDULER, BINDER): (
        ("feature-gates", "text", ""),
        ("resource-reservation-app-label", "text", names.RESERVATION_APP),
        ("resource-reservation-namespace", "text", names.RESERVATION_NAMESPACE),
    ),
    (SCHEDULER, QUEUES): (("metrics-namespace", "text", "kai"),),
    (BINDER, PODGROUPER, POD_GROUPS): (("max-concurrent-reconciles", "whole", 10),),
    (BINDER, ADMISSION): (
        ("rate-limiter-base-delay", "whole", 1),
        ("rate-limiter-max-delay", "whole", 60),
        ("fake-gpu-nodes", "truth", False),
    ),
    (BINDER, SCALE): (("scale-adjust-namespace", "text", names.SCALE_ADJUST_NAMESPACE),),
    (QUEUES, POD_GROUPS): (("skip-controller-name-validation", "truth", False),),
    (QUEUES, POD_GROUPS, ADMISSION): (("webhook-cert-dir", "text", names.WEBHOOK_CERTIFICATES),),
    (QUEUES, ADMISSION): (("enable-quota-validation", "truth", False),),
    _CONTROLLERS: (
        ("zap-devel", "truth", False),
        ("zap-encoder", "text", ""),
        ("zap-log-level", "verbosity", 3),
        ("zap-stacktrace-level", "text", ""),
        ("zap-time-encoding", "text", ""),
    ),
}

OWN: Final[Mapping[str, tuple[Row, ...]]] = {
    SCHEDULER: (
        ("namespace", "text", ""),
        ("scheduler-conf", "text", ""),
        ("partition-label-value", "label-value", ""),
        ("schedule-period", "duration", 1.0),
        ("listen-address", "text", ""),
        ("plugin-server-port", "port", 8081),
        ("restrict-node-scheduling", "truth", False),
        ("cpu-worker-node-label-key", "label-key", names.CPU_WORKER),
        ("gpu-worker-node-label-key", "label-key", names.GPU_WORKER),
        ("mig-worker-node-label-key", "label-key", names.MIG_ENABLED),
        ("max-consolidation-preemptees", "whole", 16),
        ("detailed-fit-errors", "truth", False),
        ("update-pod-eviction-condition", "truth", False),
        ("schedule-csi-storage", "truth", False),
        ("use-scheduling-signatures", "truth", True),
        ("full-hierarchy-fairness", "truth", True),
        ("allow-consolidating-reclaim", "truth", True),
        ("num-of-status-recording-workers", "whole", 5),
        ("default-staleness-grace-period", "duration", 60.0),
        ("stuck-in-releasing-threshold", "duration", 120.0),
        ("log-flush-frequency", "duration", 5.0),
        ("enable-profiler", "truth", False),
        ("profiler-port", "text", "8182"),
        ("pyroscope-address", "text", ""),
        ("pyroscope-mutex-profiler-rate", "whole", 5),
        ("pyroscope-block-profiler-rate", "whole", 5),
        ("version", "truth", True),
        # kai's own flags.
        ("config", "text", ""),
        ("evict-by", "text", "eviction"),
        ("bind-events", "text", "pod"),
        ("hand-over", "truth", True),
        ("bind-requests", "text", "needed"),
        ("max-pending-shapes-per-namespace", "whole", NAMESPACE_SHAPES),
        ("max-pending-pods-per-namespace", "whole", NAMESPACE_PODS),
        ("queue-access", "text", "open"),
        ("name-aggressors", "truth", False),
        ("decision-log", "text", ""),
        ("decision-log-megabytes", "whole", 64),
        ("decision-log-files", "whole", 4),
        ("shadow", "truth", False),
        ("shadow-patience", "duration", 60.0),
        ("dashboard", "address", ""),
        ("dashboard-auth", "text", "local"),
        ("dashboard-cert-dir", "text", ""),
    ),
    BINDER: (
        ("resource-reservation-service-account", "text", names.RESERVATION_APP),
        ("resource-reservation-pod-image", "text", ""),
        ("resource-reservation-allocation-timeout", "whole", 40),
        ("resource-reservation-pod-resources", "json", {}),
        ("resource-reservation-pod-security-context", "json", {}),
        ("resource-reservation-container-security-context", "json", {}),
        ("plugins", "json", {}),
        ("runtime-class-name", "text", ""),
    ),
    PODGROUPER: (
        ("search-legacy-pg", "truth", True),
        ("knative-gang-schedule", "truth", True),
        ("generic-karta-fallback", "truth", True),
        ("default-priorities-configmap-name", "text", ""),
        ("default-priorities-configmap-namespace", "text", ""),
        ("pod-label-selector", "labels", {}),
        ("namespace-label-selector", "labels", {}),
        ("pod-groups", "text", "always"),
    ),
    POD_GROUPS: (("enable-podgroup-webhook", "truth", True), ("log-level", "verbosity", 3)),
    QUEUES: (
        ("enable-webhook", "truth", True),
        ("metrics-listen-address", "text", ""),
        ("queue-label-to-metric-label", "labels", {}),
        ("queue-label-to-default-metric-value", "labels", {}),
    ),
    SCALE: (
        ("scaling-pod-image", "text", ""),
        ("scaling-pod-app-label", "text", "scaling-pod"),
        ("scaling-pod-service-account", "text", "scaling-pod"),
        ("gpu-memory-to-fraction-ratio", "number", 0.1),
    ),
    ADMISSION: (
        ("webhook-addr", "port", 9443),
        ("webhook-secret", "text", ""),
        ("webhook-certificate-lifetime", "duration", 7_776_000.0),
        ("gpu-sharing-enabled", "truth", False),
        ("hami-core-enabled", "truth", False),
        ("block-nvidia-visible-devices", "truth", False),
        ("gpu-fraction-runtime-class-name", "text", "nvidia"),
        ("gpu-pod-runtime-class-name", "text", ""),
    ),
}

# Accepted, because KAI-Scheduler's operator writes them or its users do. The text says where to look instead.
INERT: Final[Mapping[str, str]] = {
    "qps": "requests are as many as the API server answers quickly",
    "burst": "requests are as many as the API server answers quickly",
    "feature-gates": "what the API server serves is used",
    "skip-controller-name-validation": "controllers have no names that could clash within a process",
    "log-flush-frequency": "every line is written at once",
    "enable-profiler": "--otlp-endpoint shows where cycles spend their time",
    "profiler-port": "--otlp-endpoint shows where cycles spend their time",
    "pyroscope-address": "--otlp-endpoint shows where cycles spend their time",
    "pyroscope-mutex-profiler-rate": "--otlp-endpoint shows where cycles spend their time",
    "pyroscope-block-profiler-rate": "--otlp-endpoint shows where cycles spend their time",
    "version": "`kai version` shows the versions",
    "zap-devel": "--zap-encoder and --zap-log-level set the log",
    "zap-stacktrace-level": "a bug leaves its traceback in the log or a file, whatever the level",
    "zap-time-encoding": "times are in RFC 3339, always",
}
