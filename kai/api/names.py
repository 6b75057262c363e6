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
DEFAULT_NAMESPACE: Final = "default"
DEFAULT_QUEUE: Final = "default-queue"
DEFAULT_PARENT_QUEUE: Final = "default-parent-queue"
DEFAULT_NODE_POOL: Final = "default"
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
RESERVATION_APP: Final = "kai-resource-reservation"
SCALE_ADJUST_NAMESPACE: Final = "kai-scale-adjust"
WEBHOOK_CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where the peer mounts a Secret

# --- Labels --------------------------------------------------------------------------------------------------------
QUEUE: Final = "kai.scheduler/queue"
"""On workloads and pods: the queue of the workload, a leaf. The key is `--queue-label-key`."""
NODE_POOL: Final = "kai.scheduler/node-pool"
"""On nodes, queues, pods, pod groups: the shard that they belong to; without it, the default one. The key is
`--nodepool-label-key`.
"""
PROJECT: Final = "project"
"""On workloads and pods: the queue where there is no queue label; with a node pool, `PROJECT-POOL`."""
USER: Final = "user"
"""On workloads and pods, as a label or an annotation: copied to the pod group."""
NOTED_USER: Final = "kai.scheduler/user"
"""On workloads, pods and pod groups, written by admission where users have limits: the account that created them."""
PRIORITY_CLASS: Final = "priorityClassName"
"""On workloads and pods: the priority class of the pod group, before `spec.priorityClassName`."""
PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
"""On workloads and pods: `preemptible` or `non-preemptible`; without it, the priority decides (below 100:
preemptible).
"""
SUBGROUP: Final = "kai.scheduler/subgroup-name"
"""On pods: the sub-group of the pod, a leaf."""
GPU_GROUP: Final = "runai-gpu-group"
"""On pods that share a GPU, written by the binder: the group of pods that share the device."""
GPU_GROUP_PREFIX: Final = "runai-gpu-group/"
"""On pods that share several GPUs, written by the binder: one label for each device, its group as ending and value."""
SELECTED_NODE: Final = "selected-node"
"""On bind requests: the node that was chosen."""
APP: Final = "app"
"""On kai's own pods: their role; on reservation and scaling pods, what they are."""
HOSTNAME: Final = "kubernetes.io/hostname"
"""On nodes: their name; may be the last level of a topology."""
SCALING_POD_NAME: Final = "shared-gpu-pod-name"
"""On scaling pods: the pod that waits for a shared GPU."""
SCALING_POD_NAMESPACE: Final = "shared-gpu-pod-namespace"
"""On scaling pods: the namespace of that pod."""

# Labels of nodes.
NODE_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
"""MiB of memory of each GPU; without it, no pod that asks for `gpu-memory` is placed on the node."""
NODE_GPU_COUNT: Final = "nvidia.com/gpu.count"
"""How many GPUs the node has; what is more than `allocatable` says counts only where GPUs are cut into MIG devices."""
NODE_GPU_PRODUCT: Final = "nvidia.com/gpu.product"
"""The product name of its GPUs; the short name of their model follows from it (`h100`)."""
NODE_GPU_MODEL: Final = "kai.scheduler/gpu-model"
"""The short name of the model of its GPUs, for queues and reports, where the product name gives no fitting one."""
NODE_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
"""`single` or `mixed`: how MIG devices of the node are named."""
CPU_WORKER: Final = "node-role.kubernetes.io/cpu-worker"
"""The node takes pods without GPUs, with `--restrict-node-scheduling`. The key is `--cpu-worker-node-label-key`."""
GPU_WORKER: Final = "node-role.kubernetes.io/gpu-worker"
"""The node takes pods with GPUs, with `--restrict-node-scheduling`. The key is `--gpu-worker-node-label-key`."""
MIG_ENABLED: Final = "node-role.kubernetes.io/mig-enabled"
"""The node's GPUs are divided by MIG, with `--restrict-node-scheduling`. The key is `--mig-worker-node-label-key`."""
NODE_AMD_GPU_MEMORY_PREFIX: Final = "beta.amd.com/gpu.vram."
"""Memory of each AMD GPU, the amount in the label's name."""

# Labels that other projects put on their pods and objects.
KUBEFLOW_JOB_NAME: Final = "training.kubeflow.org/job-name"
"""Set by Kubeflow's training operator: the job that a pod belongs to."""

KUEUE_MAX_EXECUTION: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Of Kueue, on workloads: the seconds after which Kueue ends them; kai plans with it."""

# --- Annotations of pods and of the workloads that own them --------------------------------------------------------
POD_GROUP: Final = "pod-group-name"
"""On pods, written by the pod grouper: the name of the pod group, in the same namespace."""
SKIP: Final = "kai.scheduler/skip-podgrouper"
"""On pods and workloads: `true` has the pod grouper leave them alone."""
MIN_MEMBER: Final = "kai.scheduler/batch-min-member"
"""On Jobs: how many pods have to start together. On JobSets and their replicated Jobs: how many of the parts."""
TOPOLOGY: Final = "kai.scheduler/topology"
"""On workloads and templates: the name of the Topology that the next two speak of."""
TOPOLOGY_REQUIRED: Final = "kai.scheduler/topology-required-placement"
"""On workloads and templates: the level (a node label) at which one domain must hold all pods."""
TOPOLOGY_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
"""On workloads and templates: the level at which one domain should hold the pods."""
SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
"""On PyTorchJobs, LeaderWorkerSets and their templates: pods in each segment; segments are placed one by one."""
SEGMENT_TOPOLOGY_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
"""The level at which one domain must hold the pods of a segment."""
SEGMENT_TOPOLOGY_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
"""The level at which one domain should hold the pods of a segment."""
PREEMPTION_DELAY: Final = "kai.scheduler/preemption-delay"
"""On workloads and pods: how long the group waits before others may be evicted for it, such as `10m`."""
STALENESS_GRACE_PERIOD: Final = "kai.scheduler/staleness-grace-period"
"""On workloads and pods: how long the group may run below its minimum; negative: for ever."""
MAX_RUNTIME: Final = "kai.scheduler/max-runtime"
"""On workloads and pod groups: how long the pods may run before kai ends them, such as `12h`."""
EXPECTED_RUNTIME: Final = "kai.scheduler/expected-runtime"
"""On workloads and pod groups: how long the pods will probably run. With the policy `yield` they make way then;
otherwise it ends nothing.
"""
RUNTIME_POLICY: Final = "kai.scheduler/runtime-policy"
"""On workloads and pod groups: what happens at the limit: `fail` (the default), `requeue` or `yield`."""
REQUEUE_DELAY: Final = "kai.scheduler/requeue-delay"
"""On workloads and pod groups: with `requeue`, how long the group waits before it may run again."""
GPU_FRACTION: Final = "gpu-fraction"
"""On pods: the part of one GPU, from 0.01 to below 1, such as `"0.5"`."""
GPU_MEMORY: Final = "gpu-memory"
"""On pods: the memory of one GPU in MiB, such as `"8000"`."""
GPU_FRACTION_DEVICES: Final = "gpu-fraction-num-devices"
"""On pods: on how many GPUs the part is taken; needs one of the two above."""
GPU_FRACTION_CONTAINER: Final = "gpu-fraction-container-name"
"""On pods: the container that sees the shared GPU; without it, the first."""
MPS: Final = "mps"
"""On pods: `"true"`, for clusters with MPS; allowed with a part of a GPU only."""
RECEIVED_RESOURCE_TYPE: Final = "received-resource-type"
"""On pods, written with the binding: `Regular` or `Fraction`."""
GRANTED: Final = "kai.scheduler/granted"
"""Of pods, written with the binding: what the pod was given, and on whose account. Of bind requests: what to write."""
EPOCH: Final = "kai.scheduler/epoch"
"""Of what leaders write: the epoch of the lease in which they held it."""
LEASE: Final = "kai.scheduler/lease"
"""Of what leaders write: which lease they held and in which epoch of it, so that late writes are refused on arrival."""
SHARED_GPU_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
"""On pods, written by admission: the config map through which the container learns about its part."""
RESERVED_GPU: Final = "run.ai/reserve_for_gpu_index"
"""On reservation pods, written by themselves: the device that they were given."""
NUMA_PREDICTED: Final = "kai.scheduler/numa-placement-predicted"
"""On pods, written with the binding: the NUMA zones that were chosen."""
NUMA_OBSERVED: Final = "kai.scheduler/numa-placement-observed"
"""On pods: the NUMA zones that the node reports."""
KARPENTER_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
"""On scaling pods: keeps Karpenter from removing their node."""
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""On resource claims made by the binder: they stand for an extended resource."""
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""On resource claims made from a template: the name that the pod has for it."""

# Annotations of volumes and of claims on them.
VOLUME_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its volume is to be made."""
VOLUME_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""On a claim: it has its volume, on both sides."""
VOLUME_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""On a volume: it was given to its claim, not made for it by hand."""

# Annotations of queues.
ALLOWED_NAMESPACES: Final = "kai.scheduler/allowed-namespaces"
"""On queues, with `--queue-access=required`: the namespaces that may use the queue, such as `vision, speech`; `*` is
all of them.
"""
ALLOWED_NAMESPACE_LABELS: Final = "kai.scheduler/allowed-namespace-labels"
"""On queues, with `--queue-access=required`: labels that a namespace which may use the queue has, all of them, such as
`team=vision,tier=research`.
"""

# Annotations of namespaces.
ALLOWED_PRIORITY_CLASSES: Final = "kai.scheduler/priority-classes"
"""On namespaces: the priority classes that their pods and pod groups may use, such as `train, build`."""
ALLOWED_PREEMPTIBILITY: Final = "kai.scheduler/allowed-preemptibility"
"""On namespaces: `preemptible`, where none of their jobs may be one that cannot be taken back."""

# Annotations of pod groups.
TOP_OWNER: Final = "kai.scheduler/top-owner-metadata"
"""The workload that the group was made for: name, UID and kind, as YAML."""
OWNER_DEADLINE: Final = "kai.scheduler/owner-deadline"
"""The run time after which the owner's own controller ends the workload, and the field that says so."""
STALE_SINCE: Final = "kai.scheduler/stale-podgroup-timestamp"
"""Since when the group has run below its minimum."""
PARTIAL_SINCE: Final = "kai.scheduler/partial-subgroups-timestamp"
"""Since when some sub-group that the group can do without has run below its own minimum."""
TRACE_PARENT: Final = "kai.scheduler/traceparent"
"""Of bind requests: the trace in which it was decided. Only where traces are exported."""
LAST_START: Final = "kai.scheduler/last-start-timestamp"
"""When the group last started; the minimum runtime counts from there."""
LAST_EVICTION: Final = "kai.scheduler/last-eviction-timestamp"
"""When the group was last evicted."""

# Annotations of eviction events.
EVICTED_PODS: Final = "num-evicted-pods"
"""How many pods the eviction took."""
EVICTOR_NAME: Final = "evictor-pod-group-name"
"""The pod group that gained, where it is in the same namespace."""
EVICTOR_NAMESPACE: Final = "evictor-pod-group-namespace"
"""Its namespace."""
EVICTOR_ACTION: Final = "evictor-action-type"
"""The action that evicted."""

# --- Finalizers ----------------------------------------------------------------------------------------------------
DRA_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""On resource claims: Kubernetes' own; an allocated claim is not deleted while a pod uses it."""

# --- Resources -----------------------------------------------------------------------------------------------------
CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
STORAGE: Final = "storage"
NVIDIA_GPU: Final = "nvidia.com/gpu"
"""Whole GPUs of NVIDIA."""
AMD_GPU: Final = "amd.com/gpu"
"""Whole GPUs of AMD."""
GPU_RESOURCES: Final = (NVIDIA_GPU, AMD_GPU)
MIG_PREFIX: Final = "nvidia.com/mig-"
"""A MIG device; the profile follows."""
GPU_MEMORY_RESOURCE: Final = "run.ai/gpu.memory"

# --- Conditions and their reasons ----------------------------------------------------------------------------------
POD_SCHEDULED_CONDITION: Final = "PodScheduled"
POD_BOUND_CONDITION: Final = "PodBound"
DISRUPTION_TARGET_CONDITION: Final = "DisruptionTarget"
UNSCHEDULABLE_ON_NODE_POOL_CONDITION: Final = "UnschedulableOnNodePool"
UNSCHEDULABLE_REASON: Final = "Unschedulable"
BINDING_ERROR_REASON: Final = "BindingError"
PREEMPTION_BY_SCHEDULER_REASON: Final = "PreemptionByScheduler"
TIME_LIMIT: Final = "TimeLimit"
"""Condition of a pod group, its reason, and the reason of events: the group reached the limit of its run time."""

# --- Values --------------------------------------------------------------------------------------------------------
PREEMPTIBLE: Final = "preemptible"
NON_PREEMPTIBLE: Final = "non-preemptible"
FRACTION: Final = "Fraction"
DEFAULT_SUBGROUP: Final = "default"
DEFAULT_POD_GROUP_PRIORITY: Final = 50
DEFAULT_QUEUE_PRIORITY: Final = 100
NON_PREEMPTIBLE_PRIORITY: Final = 100
UNLIMITED: Final = -1.0
