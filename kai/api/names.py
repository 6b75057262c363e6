"""Every label, annotation, finalizer, API group and resource name that kai reads or writes; the only string constants.

Sections follow where a name stands. QUEUE, NODE_POOL and the three worker labels are the defaults of settings.
"""

from __future__ import annotations

from typing import Final

# --- API groups and versions ---------------------------------------------------------------------------------------
QUEUE_VERSION: Final = "scheduling.run.ai/v2"
POD_GROUP_VERSION: Final = "scheduling.run.ai/v2alpha2"
TOPOLOGY_VERSION: Final = "kai.scheduler/v1alpha1"

# --- Names of our own objects and places ---------------------------------------------------------------------------
SCHEDULER_NAME: Final = "kai-scheduler"
KAI_NAMESPACE: Final = "kai-scheduler"
DEFAULT_QUEUE: Final = "default-queue"
DEFAULT_PARENT_QUEUE: Final = "default-parent-queue"
DEFAULT_NODE_POOL: Final = "default"
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
RESERVATION_APP: Final = "kai-resource-reservation"
SCALE_ADJUST_NAMESPACE: Final = "kai-scale-adjust"
WEBHOOK_CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where the peer mounts a Secret

# --- Labels --------------------------------------------------------------------------------------------------------
QUEUE: Final = "kai.scheduler/queue"
NODE_POOL: Final = "kai.scheduler/node-pool"
PROJECT: Final = "project"
USER: Final = "user"
PRIORITY_CLASS: Final = "priorityClassName"
PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
SUBGROUP: Final = "kai.scheduler/subgroup-name"
GPU_GROUP: Final = "runai-gpu-group"
GPU_GROUP_PREFIX: Final = "runai-gpu-group/"
SELECTED_NODE: Final = "selected-node"
APP: Final = "app"
HOSTNAME: Final = "kubernetes.io/hostname"
SCALING_POD_NAME: Final = "shared-gpu-pod-name"
SCALING_POD_NAMESPACE: Final = "shared-gpu-pod-namespace"

# Labels of nodes.
NODE_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
NODE_GPU_COUNT: Final = "nvidia.com/gpu.count"
NODE_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
CPU_WORKER: Final = "node-role.kubernetes.io/cpu-worker"
GPU_WORKER: Final = "node-role.kubernetes.io/gpu-worker"
MIG_ENABLED: Final = "node-role.kubernetes.io/mig-enabled"
NODE_AMD_GPU_MEMORY_PREFIX: Final = "beta.amd.com/gpu.vram."

# Labels that other projects put on their pods and objects.
KUBEFLOW_JOB_NAME: Final = "training.kubeflow.org/job-name"

# --- Annotations of pods and of the workloads that own them --------------------------------------------------------
POD_GROUP: Final = "pod-group-name"
SKIP: Final = "kai.scheduler/skip-podgrouper"
MIN_MEMBER: Final = "kai.scheduler/batch-min-member"
TOPOLOGY: Final = "kai.scheduler/topology"
TOPOLOGY_REQUIRED: Final = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
SEGMENT_TOPOLOGY_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
SEGMENT_TOPOLOGY_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
PREEMPTION_DELAY: Final = "kai.scheduler/preemption-delay"
STALENESS_GRACE_PERIOD: Final = "kai.scheduler/staleness-grace-period"
GPU_FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
GPU_FRACTION_DEVICES: Final = "gpu-fraction-num-devices"
GPU_FRACTION_CONTAINER: Final = "gpu-fraction-container-name"
MPS: Final = "mps"
RECEIVED_RESOURCE_TYPE: Final = "received-resource-type"
GRANTED: Final = "kai.scheduler/granted"
"""Of pods, written with the binding: what the pod was given, and on whose account. Of bind requests: what to write."""
EPOCH: Final = "kai.scheduler/epoch"
LEASE: Final = "kai.scheduler/lease"
"""Of what leaders write: which lease they held and in which epoch of it, so that late writes are refused on arrival."""
SHARED_GPU_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
RESERVED_GPU: Final = "run.ai/reserve_for_gpu_index"
NUMA_PREDICTED: Final = "kai.scheduler/numa-placement-predicted"
NUMA_OBSERVED: Final = "kai.scheduler/numa-placement-observed"
KARPENTER_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"

# Annotations of volumes and of claims on them.
VOLUME_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its volume is to be made."""
VOLUME_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""On a claim: it has its volume, on both sides."""
VOLUME_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""On a volume: it was given to its claim, not made for it by hand."""

# Annotations of pod groups.
TOP_OWNER: Final = "kai.scheduler/top-owner-metadata"
STALE_SINCE: Final = "kai.scheduler/stale-podgroup-timestamp"
TRACE_PARENT: Final = "kai.scheduler/traceparent"
"""Of bind requests: the trace in which it was decided. Only where traces are exported."""
LAST_START: Final = "kai.scheduler/last-start-timestamp"
LAST_EVICTION: Final = "kai.scheduler/last-eviction-timestamp"

# Annotations of eviction events.
EVICTED_PODS: Final = "num-evicted-pods"
EVICTOR_NAME: Final = "evictor-pod-group-name"
EVICTOR_NAMESPACE: Final = "evictor-pod-group-namespace"
EVICTOR_ACTION: Final = "evictor-action-type"

# --- Finalizers ----------------------------------------------------------------------------------------------------
DRA_FINALIZER: Final = "resource.kubernetes.io/delete-protection"

# --- Resources -----------------------------------------------------------------------------------------------------
CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
STORAGE: Final = "storage"
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
GPU_RESOURCES: Final = (NVIDIA_GPU, AMD_GPU)
MIG_PREFIX: Final = "nvidia.com/mig-"
HUGE_PAGES_PREFIX: Final = "hugepages-"
GPU_MEMORY_RESOURCE: Final = "run.ai/gpu.memory"

# --- Conditions and their reasons ----------------------------------------------------------------------------------
POD_SCHEDULED_CONDITION: Final = "PodScheduled"
POD_BOUND_CONDITION: Final = "PodBound"
DISRUPTION_TARGET_CONDITION: Final = "DisruptionTarget"
UNSCHEDULABLE_ON_NODE_POOL_CONDITION: Final = "UnschedulableOnNodePool"
UNSCHEDULABLE_REASON: Final = "Unschedulable"
BINDING_ERROR_REASON: Final = "BindingError"
PREEMPTION_BY_SCHEDULER_REASON: Final = "PreemptionByScheduler"

# --- Values --------------------------------------------------------------------------------------------------------
PREEMPTIBLE: Final = "preemptible"
NON_PREEMPTIBLE: Final = "non-preemptible"
FRACTION: Final = "Fraction"
DEFAULT_SUBGROUP: Final = "default"
DEFAULT_POD_GROUP_PRIORITY: Final = 50
DEFAULT_QUEUE_PRIORITY: Final = 100
NON_PREEMPTIBLE_PRIORITY: Final = 100
UNLIMITED: Final = -1.0
