"""Samples that no other test has: one of each thing that is read."""

import json
from typing import Final

POLICIES: Final = (
    {
        "actions": ["allocate"],
        "plugins": {"binpack": {"cpu": True}, "min_runtime": {"preempt_seconds": 1.0}},
        "parameters": {"queue_depth": {"allocate": 1}, "budgets": {"action": {"default": 1.0}}},
    },
    {
        "actions": "allocate, reclaim",
        "tiers": [{"plugins": [{"name": "proportion", "arguments": {"kValue": "1"}}, {"name": "numa"}]}],
        "queueDepthPerAction": {"allocate": 1},
        "scenarioSearchBudgets": {"maxJobSearchDuration": "1s", "maxActionSearchDuration": {"default": "1s"}},
        "usageDBConfig": {
            "clientType": "prometheus",
            "usageParams": {"halfLifePeriod": "10m", "windowType": "sliding"},
            "connectionString": "http://p:9090",
        },
    },
)
CLUSTER: Final = """\
queues: {all: {quota: 16}, work: {parent: all, quota: 16, limit: 32, weight: 2}}
shapes: {a: {gpu: 8, cpu: 64, memory: 80Gi, ram: 512Gi, count: 2, labels: {x: z}, taints: ["x=y:NoSchedule"]}}
events:
- {at: 1h, node: a-1, fail: 30m}
- {at: 2h, node: a-1, taint: "x=y:NoSchedule", for: 2h}
- {at: 3h, add: a, count: 1}
mtbf: 30d
repair: 2h
autoscale: [{shape: a, min: 0, max: 2, provision: 5m, idle: 10m}]
"""
OPENB: Final = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,6000,12288,1,460,A10|T4,LS,Running,10,70,40\np1,4000,1024,2,1000,,BE,Failed,20,25,21\n"
)
HELIOS: Final = (
    "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "7,u1,vc1,x,16,64,2,COMPLETED,2020-04-01 00:01:00,x,x,600,3\n"
)
SLURM: Final = (
    "JobID|User|Account|Partition|Submit|ElapsedRaw|NNodes|ReqTRES|State\n"
    "12|ann|lab|gpu|2026-01-05T08:00:00|3600|2|billing=64,cpu=64,gres/gpu=16,mem=512G,node=2|COMPLETED\n"
)
SACCT_JSON: Final = json.dumps(
    {
        "jobs": [
            {
                "account": "ml",
                "user": "alice",
                "allocation_nodes": 2,
                "array": {"job_id": 83, "task_id": {"set": True, "infinite": False, "number": 2}, "task": ""},
                "het": {"job_id": 0, "job_offset": None},
                "job_id": 85,
                "nodes": "v[2-3]",
                "state": {"current": ["COMPLETED"], "reason": "None"},
                "time": {
                    "elapsed": 10,
                    "eligible": 1795874099,
                    "end": 1795874110,
                    "start": 1795874100,
                    "submission": 1795874099,
                    "suspended": 0,
                },
                "tres": {
                    "allocated": [{"type": "cpu", "name": "", "count": 2}, {"type": "gres", "name": "gpu", "count": 5}],
                    "requested": [{"type": "mem", "name": "", "count": 2000}],
                },
            }
        ]
    }
)
OURS: Final = (
    "arrival_s,duration_s,pods,gpus_per_pod,gpu_share,min_member,queue,user,priority,preemptible\n"
    "60,3600,4,8,,2,a,ann,train,true\n0,,1,,0.5,,b,bob,,\n"
)
PHILLY: Final = json.dumps(
    [
        {
            "jobid": "a",
            "vc": "v",
            "user": "u",
            "submitted_time": "2017-10-09 07:02:00",
            "attempts": [
                {
                    "start_time": "2017-10-09 07:03:00",
                    "end_time": "2017-10-09 08:03:00",
                    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
                }
            ],
        }
    ]
)
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true, proxy-url: "http://p:1"}}
contexts: [{name: one, context: {cluster: c, user: u, namespace: team}}]
users: [{name: u, user: {token: "a.eyJzdWIiOiAidSJ9.c"}}]
"""
DECISION: Final = {
    "time": "2026-01-01T00:00:00Z",
    "kind": "evict",
    "cycle": 7,
    "subject": {"namespace": "a", "pod": "p", "uid": "u"},
    "gainer": {"namespace": "b", "group": "g"},
    "numbers": {"gpus": 1.5},
    "inputHash": "abc",
}
SAMPLES: Final = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {"queue_name": "a"}, "value": [1.5, "12.5"]}]},
}
TOKEN: Final = {
    "status": {
        "authenticated": True,
        "user": {"username": "u", "uid": "1", "groups": ["g", "h"], "extra": {"a": ["b"]}},
    }
}
LEASE: Final = {
    "kind": "Lease",
    "metadata": {"resourceVersion": "17"},
    "spec": {
        "holderIdentity": "a_b",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 3,
        "renewTime": "2026-01-01T00:00:00Z",
    },
}
STATUS: Final = {
    "kind": "Status",
    "code": 429,
    "reason": "TooManyRequests",
    "message": "slow down",
    "retryAfter": "3",
    "details": {
        "name": "x",
        "kind": "pods",
        "retryAfterSeconds": 7,
        "causes": [{"reason": "DisruptionBudget", "field": "metadata.uid"}],
    },
}
STREAM: Final = (
    '{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"p","uid":"u","resourceVersion":"5"},"spec":{"nodeName":"n"}}}\n'
    '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'
    '{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
)
PAGE: Final = '{"metadata":{"resourceVersion":"5","continue":"x"},"items":[{"metadata":{"name":"p"}},{"metadata":{}}]}'
SHARD: Final = {
    "apiVersion": "kai.scheduler/v1",
    "kind": "SchedulingShard",
    "metadata": {"name": "default"},
    "spec": {
        "partitionLabelValue": "a",
        "placementStrategy": {"gpu": "binpack", "cpu": "spread"},
        "args": {"verbosity": "4"},
        "queueDepthPerAction": {"allocate": 3},
        "minRuntime": {"preemptMinRuntime": "10m"},
        "kValue": 1.5,
        "plugins": {"numa": {"enabled": True, "priority": 3, "arguments": {"a": "b"}}},
    },
}
QUERIES: Final = (
    '.spec.list[] | select(.n > 2) | .name // "x"',
    ".a.b[1:3], (.c | length)",
    "if .a then .b else .c end",
    "reduce .x[] as $i (0; . + $i) | tostring | ascii_downcase",
    '.metadata.labels["a/b"] // "x" | test("^[a-z]+$")',
    '[.spec.list[] | {a: .n, "c": (.d // 1)}] | sort_by(.a) | map(.c) | add',
    '"\\(.a)-\\(.b)" | split("-") | join("/")',
    "[.x[]] | map(. * 2)",
    "-(.n) * 2 % 3",
    '.text | ltrimstr("ab") | tonumber? // 0',
    'try error("x") catch .',
    ".a as $x | [.b[]? | . + $x]",
)
SELECTORS: Final = (
    'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].index in [1, 2]',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) == 0',
    'device.attributes["gpu.example.com"].?missing.orValue(7) == 7',
    'semver(device.attributes["gpu.example.com"].driverVersion).isGreaterThan(semver("1.2.3-rc.1"))',
    'cel.bind(gpu, device.attributes["gpu.example.com"], gpu.model.lowerAscii().startsWith("a") && gpu.index < 3)',
)
VALUE: Final = {
    "a": {"b": [1, 2, 3, 4]},
    "n": 3,
    "spec": {"list": [{"n": 3, "name": "x"}]},
    "text": "ab12",
    "x": [1, 2],
}
