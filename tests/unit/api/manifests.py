"""One complete manifest of each kind: every field that kai knows is set, to something other than its default.

What is here is written as a person or the API server writes it, so reading and writing it back must give it unchanged.
"""

from typing import Any, Final

from tests.unit.api.queue_parts import BUDGET_STATUSES, BUDGETS, MODELS, PER_USER, SCHEDULES

Manifest = dict[str, Any]

OWNER: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "u-7",
    "controller": True,
    "blockOwnerDeletion": False,
}


def metadata(name: str, namespace: str | None = None) -> Manifest:
    place = {} if namespace is None else {"namespace": namespace}
    return {
        "name": name,
        **place,
        "uid": f"uid-{name}",
        "resourceVersion": "17",
        "generation": 2,
        "creationTimestamp": "2026-01-01T12:00:00Z",
        "deletionTimestamp": "2026-01-01T12:30:00Z",
        "labels": {"a/b": "c"},
        "annotations": {"d/e": "f"},
        "ownerReferences": [OWNER],
        "finalizers": ["x/y"],
    }


NODE_TERM: Final = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1", "z2"]}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}],
}
NODE_SELECTOR: Final = {"nodeSelectorTerms": [NODE_TERM]}
LABEL_SELECTOR: Final = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x"]}],
}
POD_TERM: Final = {
    "labelSelector": LABEL_SELECTOR,
    "namespaces": ["a"],
    "namespaceSelector": {},
    "topologyKey": "kubernetes.io/hostname",
    "matchLabelKeys": ["k"],
    "mismatchLabelKeys": ["m"],
}
POD_AFFINITY: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": POD_TERM}],
}
CONDITION: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no",
    "lastProbeTime": "2026-01-01T12:00:01Z",
    "lastTransitionTime": "2026-01-01T12:00:02Z",
    "observedGeneration": 3,
}
CONTAINER: Final = {
    "name": "main",
    "resources": {
        "requests": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
        "claims": [{"name": "gpus", "request": "one"}],
    },
    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "TCP"}],
    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": True}}}],
    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm", "optional": False}}],
    "volumeMounts": [{"name": "v2", "bindMountOptions": ["noexec"]}],
    "restartPolicy": "Always",
    "restartPolicyRules": [{"action": "RestartAllContainers"}],
}
CLAIM_SPEC: Final = {
    "storageClassName": "",
    "volumeName": "pv-1",
    "accessModes": ["ReadWriteOnce"],
    "volumeMode": "Block",
    "resources": {"requests": {"storage": "10Gi"}},
    "selector": LABEL_SELECTOR,
}
VOLUMES: Final = [
    {"name": "v1", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    {"name": "v2", "configMap": {"name": "cm", "optional": True}},
    {"name": "v3", "secret": {"secretName": "s", "optional": True}},
    {
        "name": "v4",
        "projected": {"sources": [{"configMap": {"name": "cm"}}, {"secret": {"name": "s", "optional": True}}]},
    },
    {
        "name": "v5",
        "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM_SPEC}},
    },
    {"name": "v6", "csi": {"driver": "d"}},
]
GIVEN: Final = {"name": "main", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
MAPPING: Final = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "r0"}
POD: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {**metadata("train-0", "default"), "generateName": "train-"},
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [{"name": "init", "restartPolicy": "Always"}],
        "ephemeralContainers": [{"name": "debug"}],
        "nodeName": "n1",
        "schedulerName": "kai-scheduler",
        "priorityClassName": "train",
        "priority": 50,
        "nodeSelector": {"pool": "a"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": NODE_SELECTOR,
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": NODE_TERM}],
            },
            "podAffinity": POD_AFFINITY,
            "podAntiAffinity": POD_AFFINITY,
        },
        "tolerations": [
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "topologySpreadConstraints": [
            {
                "topologyKey": "zone",
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": LABEL_SELECTOR,
                "minDomains": 2,
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Ignore",
                "matchLabelKeys": ["k"],
            },
        ],
        "schedulingGates": [{"name": "wait"}],
        "resourceClaims": [
            {"name": "gpus", "resourceClaimName": "shared"},
            {"name": "own", "resourceClaimTemplateName": "template"},
        ],
        "volumes": VOLUMES,
        "overhead": {"cpu": "10m"},
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
        "hostNetwork": True,
        "hostUsers": False,
        "restartPolicy": "Never",
        "runtimeClassName": "nvidia",
    },
    "status": {
        "phase": "Pending",
        "conditions": [CONDITION],
        "nominatedNodeName": "n2",
        "startTime": "2026-01-01T12:00:03.500000Z",
        "qosClass": "Burstable",
        "containerStatuses": [GIVEN],
        "initContainerStatuses": [{**GIVEN, "name": "side"}],
        "allocatedResources": {"cpu": "2"},
        "resources": {"requests": {"cpu": "2"}},
        "resourceClaimStatuses": [{"name": "own", "resourceClaimName": "own-x1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "train-0-x", "requestMappings": [MAPPING]},
    },
}
NODE: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": metadata("n1"),
    "spec": {
        "unschedulable": True,
        "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-01-01T12:00:00Z"}],
    },
    "status": {
        "allocatable": {"cpu": "20k", "memory": "20G", "pods": "110", "nvidia.com/gpu": "8"},
        "declaredFeatures": ["RestartAllContainersOnContainerExits"],
        "capacity": {"cpu": "21k", "hugepages-2Mi": "1Gi"},
        "conditions": [CONDITION],
    },
}
AMOUNTS: Final = {"cpu": "2", "memory": "1G", "nvidia.com/gpu": "500m"}
SHARES: Final = {"quota": 8, "overQuotaWeight": 2.5, "limit": -1}
QUEUE: Final[Manifest] = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": metadata("team-a"),
    "spec": {
        "displayName": "Team A",
        "parentQueue": "research",
        "priority": 90,
        "resources": {"gpu": SHARES, "cpu": SHARES, "memory": SHARES, "models": MODELS, "perUser": PER_USER},
        "schedules": SCHEDULES,
        "budgets": BUDGETS,
        "preemptMinRuntime": "1m0s",
        "reclaimMinRuntime": "48h0m0s",
        "maxRuntime": "24h0m0s",
        "defaultRuntime": "1h0m0s",
    },
    "status": {
        "childQueues": ["x"],
        "allocated": AMOUNTS,
        "allocatedNonPreemptible": AMOUNTS,
        "requested": AMOUNTS,
        "fairShare": AMOUNTS,
        "budgets": BUDGET_STATUSES,
        "conditions": [CONDITION],
    },
}
CONSTRAINT: Final = {
    "topology": "rows",
    "requiredTopologyLevel": "zone",
    "preferredTopologyLevel": "rack",
}
POD_GROUP: Final[Manifest] = {
    "apiVersion": "scheduling.run.ai/v2alpha2",
    "kind": "PodGroup",
    "metadata": metadata("train", "default"),
    "spec": {
        "queue": "team-a",
        "minMember": 0,
        "minSubGroup": 1,
        "priorityClassName": "train",
        "preemptibility": "non-preemptible",
        "topologyConstraint": CONSTRAINT,
        "subGroups": [
            {"name": "all", "minSubGroup": 1, "topologyConstraint": CONSTRAINT},
            {"name": "workers-0", "parent": "all", "minMember": 2},
        ],
        "markUnschedulable": False,
        "schedulingBackoff": -1,
        "preemptionDelay": "30s",
        "stalenessGracePeriod": "-1s",
    },
    "status": {
        "conditions": [{**CONDITION, "transitionID": "1"}],
        "schedulingConditions": [
            {
                "type": "UnschedulableOnNodePool",
                "nodePool": "default",
                "reason": "Unschedulable",
                "message": "m",
                "reasons": [
                    {
                        "reason": "OverLimit",
                        "message": "m",
                        "details": {
                            "queueDetails": {
                                "name": "team-a",
                                "queueRequestedResources": AMOUNTS,
                                "queueDeservedResources": AMOUNTS,
                                "queueAllocatedResources": AMOUNTS,
                                "queueAllocatedNonPreemptibleResources": AMOUNTS,
                                "queueResourceLimits": AMOUNTS,
                                "podGroupRequestedResources": AMOUNTS,
                                "podGroupRequestedNonPreemptibleResources": AMOUNTS,
                            },
                        },
                    },
                ],
                "transitionID": "3",
                "lastTransitionTime": "2026-01-01T12:00:00Z",
                "status": "True",
            },
        ],
        "resourcesStatus": {
            "allocated": AMOUNTS,
            "allocatedNonPreemptible": AMOUNTS,
            "requested": AMOUNTS,
        },
        "runningSince": "2026-01-31T12:00:00Z",
        "consumedRuntime": "30m0s",
    },
}
DEVICE_TOLERATION: Final = {"key": "bad", "operator": "Exists", "effect": "NoSchedule"}
CEL: Final = {"cel": {"expression": "device.driver == 'x'"}}
EXACTLY: Final = {
    "deviceClassName": "gpu.nvidia.com",
    "selectors": [CEL],
    "allocationMode": "ExactCount",
    "count": 2,
    "adminAccess": False,
    "tolerations": [DEVICE_TOLERATION],
    "capacity": {"requests": {"memory": "1Gi"}},
}
OPAQUE: Final = {"opaque": {"driver": "x", "parameters": {"a": [1, 2.5, None, True]}}}
ALLOCATION: Final = {
    "devices": {
        "results": [
            {
                "request": "one",
                "driver": "gpu.nvidia.com",
                "pool": "n1",
                "device": "gpu-0",
                "adminAccess": False,
                "tolerations": [DEVICE_TOLERATION],
                "bindingConditions": ["ready"],
                "bindingFailureConditions": ["failed"],
                "shareID": "s1",
                "consumedCapacity": {"memory": "1Gi"},
            },
        ],
        "config": [OPAQUE],
    },
    "nodeSelector": NODE_SELECTOR,
    "allocationTimestamp": "2026-01-01T12:00:00Z",
}
BIND_REQUEST: Final[Manifest] = {
    "apiVersion": "scheduling.run.ai/v1alpha2",
    "kind": "BindRequest",
    "metadata": metadata("train-0", "default"),
    "spec": {
        "podName": "train-0",
        "selectedNode": "n1",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 1, "portion": "0.50"},
        "selectedGPUGroups": ["g1"],
        "resourceClaimAllocations": [{"name": "gpus", "allocation": ALLOCATION}],
        "extendedResourceClaimAllocation": {
            "allocation": ALLOCATION,
            "deviceRequests": [{"name": "r0", "exactly": EXACTLY}],
            "containerMappings": [MAPPING],
        },
        "predictedNUMAZones": [{"zone": "node-0", "amount": {"cpu": "8"}}],
        "backoffLimit": 3,
    },
    "status": {"phase": "Failed", "reason": "no such node", "failedAttempts": 2},
}
TOPOLOGY: Final[Manifest] = {
    "apiVersion": "kai.scheduler/v1alpha1",
    "kind": "Topology",
    "metadata": metadata("rows"),
    "spec": {"levels": [{"nodeLabel": "topology.kubernetes.io/zone", "alias": "zone"}, {"nodeLabel": "rack"}]},
}
SHARD: Final[Manifest] = {
    "apiVersion": "kai.scheduler/v1",
    "kind": "SchedulingShard",
    "metadata": metadata("default"),
    "spec": {
        "args": {"v": "4"},
        "partitionLabelValue": "pool-a",
        "placementStrategy": {"gpu": "spread", "cpu": "binpack"},
        "queueDepthPerAction": {"preempt": 10},
        "minRuntime": {"preemptMinRuntime": "1m0s", "reclaimMinRuntime": "1h0m0s"},
        "kValue": 0.5,
        "usageDBConfig": {
            "clientType": "prometheus",
            "connectionString": "http://usage:9090",
            "connectionStringEnvVar": "USAGE",
            "usageParams": {
                "halfLifePeriod": "10m0s",
                "windowSize": "168h0m0s",
                "windowType": "tumbling",
                "tumblingWindowStartTime": "2026-01-01T00:00:00Z",
                "cronString": "0 0 * * *",
                "fetchInterval": "1m0s",
                "stalenessPeriod": "5m0s",
                "waitTimeout": "1m0s",
                "extraParams": {"a": "b"},
            },
        },
        "scenarioSearchBudgets": {
            "maxActionSearchDuration": {"default": "5m0s"},
            "maxJobSearchDuration": "4m0s",
            "minJobSearchDuration": "1s",
            "maxGeneratorSearchDuration": {"NodeLocalGreedy": "30s"},
        },
        "plugins": {"numa": {"enabled": True, "priority": 5, "arguments": {"ignoreList": "cpu"}}, "elastic": {}},
        "actions": {"consolidation": {"enabled": False, "priority": 1}},
        "goMemLimitRatio": 0.75,
        "goMemLimit": "1Gi",
    },
    "status": {"conditions": [CONDITION]},
}
SECTIONS: Final = (
    "podGrouper", "binder", "admission", "scheduler", "queueController", "podGroupController", "nodeScaleAdjuster",
    "prometheus", "numaPlacementExporter",
)  # fmt: skip
CONFIG: Final[Manifest] = {
    "apiVersion": "kai.scheduler/v1",
    "kind": "Config",
    "metadata": metadata("kai-config"),
    "spec": {
        "namespace": "kai",
        "global": {
            "schedulerName": "kai-scheduler",
            "nodePoolLabelKey": "pool",
            "queueLabelKey": "queue",
            "replicaCount": 2,
            "namespaceLabelSelector": {"a": "b"},
            "podLabelSelector": {"c": "d"},
            "jsonLog": True,
        },
        **{section: {"service": {"enabled": True}} for section in SECTIONS},
    },
    "status": {"conditions": [CONDITION]},
}
PRIORITY_CLASS: Final[Manifest] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": metadata("train"),
    "value": 50,
    "globalDefault": True,
    "preemptionPolicy": "Never",
}
CONFIG_MAP: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": metadata("cm", "default"),
    "data": {"k": "v"},
}
NAMESPACE: Final[Manifest] = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata("default")}
DISRUPTION_BUDGET: Final[Manifest] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": metadata("web", "default"),
    "spec": {
        "selector": LABEL_SELECTOR,
        "minAvailable": "50%",
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    },
    "status": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2},
}
CLAIM: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": metadata("data", "default"),
    "spec": CLAIM_SPEC,
    "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
}
VOLUME: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": metadata("pv-1"),
    "spec": {
        "capacity": {"storage": "10Gi"},
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "a", "name": "d", "uid": "u"},
        "nodeAffinity": {"required": NODE_SELECTOR},
        "csi": {"driver": "d", "volumeHandle": "h"},
    },
    "status": {"phase": "Bound"},
}
STORAGE_CLASS: Final[Manifest] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": metadata("fast"),
    "provisioner": "d",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["z1"]}]}],
}
DRIVER: Final[Manifest] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": metadata("d"),
    "spec": {"storageCapacity": True},
}
CSI_NODE: Final[Manifest] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": metadata("n1"),
    "spec": {"drivers": [{"name": "d", "allocatable": {"count": 24}}]},
}
CAPACITY: Final[Manifest] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIStorageCapacity",
    "metadata": metadata("c", "default"),
    "storageClassName": "fast",
    "nodeTopology": LABEL_SELECTOR,
    "capacity": "100Gi",
    "maximumVolumeSize": "10Gi",
}
DEVICES: Final = {
    "requests": [
        {"name": "one", "exactly": EXACTLY},
        {
            "name": "two",
            "firstAvailable": [{"name": "a", **{key: EXACTLY[key] for key in EXACTLY if key != "adminAccess"}}],
        },
    ],
    "constraints": [
        {"requests": ["one"], "matchAttribute": "x/numa"},
        {"distinctAttribute": "x/id"},
    ],
    "config": [OPAQUE],
}
RESOURCE_CLAIM: Final[Manifest] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": metadata("gpus", "default"),
    "spec": {"devices": DEVICES},
    "status": {
        "allocation": ALLOCATION,
        "reservedFor": [{"apiGroup": "x", "resource": "pods", "name": "train-0", "uid": "u"}],
        "devices": [
            {"driver": "d", "pool": "n1", "device": "gpu-0", "shareID": "s", "conditions": [CONDITION]},
        ],
    },
}
CLAIM_TEMPLATE: Final[Manifest] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": metadata("template", "default"),
    "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": DEVICES}},
}
DEVICE: Final = {
    "name": "gpu-0",
    "attributes": {
        "index": {"int": 0},
        "healthy": {"bool": False},
        "model": {"string": "x"},
        "driver": {"version": "1.2.3"},
    },
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "40Gi", "step": "1Gi"}},
        },
        "cores": {"value": "8", "requestPolicy": {"default": "1", "validValues": ["1", "8"]}},
    },
    "consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": "1"}}}],
    "nodeName": "n1",
    "nodeSelector": NODE_SELECTOR,
    "allNodes": False,
    "taints": [{"key": "bad", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}],
    "bindsToNode": True,
    "bindingConditions": ["ready"],
    "bindingFailureConditions": ["failed"],
    "allowMultipleAllocations": True,
}
RESOURCE_SLICE: Final[Manifest] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": metadata("n1-gpu"),
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "nodeSelector": NODE_SELECTOR,
        "allNodes": False,
        "perDeviceNodeSelection": False,
        "devices": [DEVICE],
        "sharedCounters": [{"name": "set", "counters": {"slices": {"value": "7"}}}],
    },
}
DEVICE_CLASS: Final[Manifest] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": metadata("gpu.nvidia.com"),
    "spec": {"selectors": [CEL], "config": [OPAQUE], "extendedResourceName": "nvidia.com/gpu"},
}
TAINT_RULE: Final[Manifest] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceTaintRule",
    "metadata": metadata("sick"),
    "spec": {
        "deviceSelector": {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"},
        "taint": {"key": "bad", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"},
    },
}
NUMA: Final[Manifest] = {
    "apiVersion": "topology.node.k8s.io/v1alpha2",
    "kind": "NodeResourceTopology",
    "metadata": metadata("n1"),
    "topologyPolicies": ["SingleNUMANodePodLevel"],
    "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
    "zones": [
        {
            "name": "node-0",
            "type": "Node",
            "parent": "n1",
            "attributes": [{"name": "a", "value": "b"}],
            "resources": [{"name": "cpu", "capacity": "8", "allocatable": "7", "available": "6"}],
        },
    ],
}

COMPLETE: Final[tuple[Manifest, ...]] = (
    POD, NODE, QUEUE, POD_GROUP, BIND_REQUEST, TOPOLOGY, SHARD, CONFIG, PRIORITY_CLASS, CONFIG_MAP, NAMESPACE,
    DISRUPTION_BUDGET, CLAIM, VOLUME, STORAGE_CLASS, DRIVER, CSI_NODE, CAPACITY, RESOURCE_CLAIM, CLAIM_TEMPLATE,
    RESOURCE_SLICE, DEVICE_CLASS, TAINT_RULE, NUMA,
)  # fmt: skip


def title(manifest: Manifest) -> str:
    """Return the kind of a manifest, as the id of a test."""
    return str(manifest["kind"])
