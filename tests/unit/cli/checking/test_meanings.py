"""What a finding means is the same in every command: a sample of each is given to lint, would-run, why and simulate."""

import json

import pytest

from kai.cli.command import run
from kai.lab.sources.judging import TOLD_BY_ANSWERS
from kai.manifests.codes import ADVICE, CODES, MEANINGS, REFUSAL, WAIT

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {gpu: h100, gpu-model: h100-sxm}}
status: {allocatable: {cpu: "64", memory: 256Gi, pods: "110", nvidia.com/gpu: "8"}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  resources: {cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}, gpu: {quota: 8, limit: -1}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: parent}
spec:
  resources: {cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}, gpu: {quota: 8, limit: -1}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: child}
spec:
  parentQueue: parent
  resources: {cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}, gpu: {quota: 8, limit: -1}}
"""
QUEUE = """\
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: other}
spec:
  resources: {cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}, gpu: {quota: 0, limit: -1}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: default
  labels: {kai.scheduler/queue: team}
  annotations: {kai.scheduler/batch-min-member: "1"}
spec:
  parallelism: 1
  template:
    metadata: {annotations: {made: here}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: default, labels: {kai.scheduler/queue: team}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
GROUP = """\
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: train, namespace: default}
spec: {queue: team, minMember: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: train-0, namespace: default, annotations: {pod-group-name: train}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def job(old, new):
    assert old in JOB
    return JOB.replace(old, new)


def on_pods(text):
    return job("{made: here}", text)


def queue(spec):
    return f"apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: mine}}\nspec: {spec}\n---\n" + job(
        "queue: team", "queue: mine"
    )


def queue_text(name, parent):
    spec = f"parentQueue: {parent}, " if parent else ""
    free = ", ".join(f"{each}: {{quota: -1, limit: -1}}" for each in ("cpu", "memory", "gpu"))
    return (
        f"apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\n"
        f"spec: {{{spec}resources: {{{free}}}}}\n"
    )


LARGE = "cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}"
SHARE = "limits: {nvidia.com/gpu: 1}", "limits: {}"


def scheduled(entry, start="0 22 * * *"):
    window = f'{{name: nights, start: "{start}", duration: 8h, {entry}}}'
    return queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}, schedules: [{window}]}}")


def modelled(models):
    """Return a queue with bounds of models of GPUs."""
    return queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: 8}}, models: {{{models}}}}}}}")


def budgeted(entry):
    budget = f"{{name: month, amount: 5, {entry}}}"
    return queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}, budgets: [{budget}]}}")


SAMPLES = {
    "T001": "a: [",
    "T002": job("spec:\n  parallelism: 1", "spec:\n  parallelism: 1\n  parallelism: 1"),
    "T003": job("kind: Job\n", ""),
    "T004": f"{JOB}---\n{JOB}",
    "F001": job("parallelism: 1", "parallelism: one"),
    "F002": job("parallelism: 1", "paralelism: 1"),
    "F003": job("parallelism: 1", "parallelism: 1\n  owner: me"),
    "F004": JOB + "---\napiVersion: scheduling.run.ai/v1\nkind: Queue\nmetadata: {name: other}\n",
    "F005": on_pods('{gpu-fractoin: "0.5"}'),
    "F006": on_pods("{kai.scheduler/colour: red}"),
    "F007": job("queue: team", "queue: team, kai.scheduler/preemptibility: nonpreemptible"),
    "Q001": queue(f"{{parentQueue: paren, resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}}}"),
    "Q002": queue(f"{{parentQueue: mine, resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}}}"),
    "Q003": queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: 4}}}}}}"),
    "Q004": queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: -1, overQuotaWeight: -1}}}}}}"),
    "Q005": queue(f"{{parentQueue: parent, resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}}}"),
    "Q006": queue(f"{{parentQueue: elsewhere, resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}}}"),
    "Q007": queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}}}").replace(
        "{name: mine}", "{name: mine, deletionTimestamp: 2026-01-01T00:00:00Z}"
    ),
    "Q008": queue("{resources: {gpu: {quota: 8, limit: -1}}}").replace("gpu: 1}", "gpu: 1, cpu: 4}"),
    "Q009": "---\n".join(queue_text(f"q{at}", f"q{at - 1}" if at else "") for at in range(33))
    + "---\n"
    + job("queue: team", "queue: q32"),
    "Q011": scheduled("notice: 1m", start="0 0 31 2 *"),
    "Q012": scheduled("resources: {gpu: {quota: 8, limit: 4}}"),
    "Q013": scheduled("onClose: evict"),
    "Q024": queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: 8}}, perUser: {{gpu: {{limit: 9}}}}}}}}"),
    "Q025": queue(f"{{resources: {{{LARGE}, gpu: {{quota: 8, limit: 8}}, perUser: {{gpu: {{limit: 2}}}}}}}}")
    + "---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n"
    + "metadata: {name: kai-pod-mutation}\n",
    "Q014": modelled("H100: {limit: 1}"),
    "Q015": modelled("h100: {limit: 9}"),
    "Q016": modelled("h100: {limit: 1}")
    + "---\napiVersion: v1\nkind: Node\nmetadata: {name: other, labels: {kai.scheduler/gpu-model: a100}}\n",
    "Q017": modelled("h100: {quota: 2, limit: 1}"),
    "Q018": modelled("h100: {quota: 5}, a100: {quota: 4}"),
    "Q019": "---\n".join(
        f"apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\n"
        f"spec: {{{above}resources: {{{LARGE}, gpu: {{quota: 8, limit: 8}}, models: {{h100: {{quota: {quota}}}}}}}}}\n"
        for name, above, quota in (("research", "", 1), ("vision", "parentQueue: research, ", 2))
    )
    + "---\n"
    + job("queue: team", "queue: vision"),
    "Q033": budgeted("period: 0 0 1 1 *"),
    "Q032": budgeted("weights: [{model: B200, weight: 3}]")
    + "---\napiVersion: v1\nkind: Node\nmetadata: {name: other, labels: {nvidia.com/gpu.product: NVIDIA-A100}}\n",
    "Q022": queue(f"{{maxRuntime: 1h, defaultRuntime: 2h, resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}}}"),
    "J001": job("queue: team", "queue: teem"),
    "J002": job("queue: team", "queue: parent"),
    "J003": JOB + "---\n" + POD.replace("name: train", "name: other").replace("kai-scheduler", "default-scheduler"),
    "J010": job("gpu: 1", "gpu: 1.5"),
    "J011": on_pods('{gpu-fraction: "1.5"}').replace(*SHARE),
    "J012": on_pods("{gpu-memory: 16Gi}").replace(*SHARE),
    "J013": on_pods('{gpu-fraction: "0.5"}'),
    "J014": on_pods('{gpu-fraction: "0.5", gpu-memory: "4000"}').replace(*SHARE),
    "J015": on_pods('{gpu-fraction: "0.5", gpu-fraction-num-devices: "0"}').replace(*SHARE),
    "J016": on_pods('{gpu-fraction: "0.5", gpu-fraction-container-name: mian}').replace(*SHARE),
    "J017": job('member: "1"', 'member: "2"'),
    "J018": job('member: "1"', 'member: "x"'),
    "J019": JOB + "---\n" + job("batch/v1", "example.com/v1").replace("kind: Job", "kind: Trainer"),
    "J020": job("nvidia.com/gpu", "amd.com/gpu"),
    "J021": job('batch-min-member: "1"', 'batch-min-member: "1", gpu-fraction: "0.5"'),
    "J022": job("namespace: default", "namespace: other").replace("queue: team", "queue: mine")
    + "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\n"
    "metadata: {name: mine, annotations: {kai.scheduler/allowed-namespaces: default}}\n"
    f"spec: {{resources: {{{LARGE}, gpu: {{quota: 8, limit: -1}}}}}}\n",
    "J023": GROUP.replace("minMember: 1", "subGroups: [{name: a, parent: b, minMember: 1}]"),
    "J024": job("limits: {nvidia.com/gpu: 1}", "requests: {nvidia.com/gpu: 1}"),
    "J025": JOB + "---\n" + POD.replace("name: train", "name: other").replace("spec:", "spec:\n  nodeName: n9"),
    "J026": job(
        "schedulerName",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: gpu, operator: Gt, values: [many]}]}]}}}\n      schedulerName",
    ),
    "J027": GROUP.replace("minMember: 1", "minMember: 1, subGroups: [{name: a, minMember: 1}]").replace(
        "annotations:", "labels: {kai.scheduler/subgroup-name: a}, annotations:"
    ),
    "J028": GROUP.replace(
        "pod-group-name: train}", 'pod-group-name: train, gpu-fraction: "1"}, resourceVersion: "1"'
    ).replace(*SHARE),
    "J029": job("queue: team", "queue: team, priorityClassName: trian"),
    "J030": job("schedulerName", "priorityClassName: trian\n      schedulerName"),
    "J031": JOB + "---\napiVersion: apps/v1\nkind: Deployment\n"
    "metadata: {name: d, annotations: {kai.scheduler/batch-min-member: '2'}}\n"
    "spec: {replicas: 0, selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, "
    "spec: {schedulerName: kai-scheduler, containers: [{name: a, image: x}]}}}\n",
    "J032": job("nvidia.com/gpu: 1", "nvidia.com/gpus: 1"),
    "J033": job("schedulerName", "nodeSelector: {gpu-modell: h100-sxm}\n      schedulerName"),
    "J040": JOB
    + "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t, namespace: default}\n"
    "spec: {runtimeRef: {name: absent}}\n",
    "J041": job("schedulerName", "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n      schedulerName"),
    "J042": JOB
    + "---\n"
    + JOB.replace("name: train", "name: other")
    .replace("kai-scheduler", "default-scheduler")
    .replace("{nvidia.com/gpu: 1}", "{}"),
    "J043": POD.replace("spec:", "spec:\n  schedulingGroup: {podGroupName: g}"),
    "J044": JOB
    + "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: torch}\n"
    "spec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: "
    "[{name: node, image: x}]}}}}}]}}}\n"
    "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"
    "metadata: {name: t, namespace: default, labels: {kai.scheduler/queue: team}}\n"
    "spec: {runtimeRef: {name: torch}, podTemplateOverrides: [{targetJobs: [{name: node}], "
    "spec: {tolerations: [{operator: Exists}]}}]}\n",
    "Q010": JOB + QUEUE + "  schedules: [{name: nights, start: '0 22 * * *', duration: 8h, timeZone: Berlin}]\n",
    "Q021": JOB + QUEUE + "  maxRuntime: 1h\n  reclaimMinRuntime: 2h\n",
    "W001": on_pods('{mps: "true"}'),
}
ELSEWHERE = {
    "T005": "a file that is not there is in no folder",
    **dict.fromkeys(("C001", "C002"), "configurations are given with --config"),
    **dict.fromkeys(("A001", "A002", "A003"), "annotations of simulations count over virtual time"),
    **dict.fromkeys(("K001", "K002", "R001", "R002"), "cluster files and traces hold no manifests"),
    "S001": "scenarios hold no manifests",
    "Q030": "the webhook refuses such a queue, which W001 says",
    "Q031": "a budget above is used up first, so that the job waits for it",
}
SAYS_START = ("starts now", "would start", '"Starts"')


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def test_each_code_has_a_meaning_and_sample_or_reason():
    assert {code.meaning for code in CODES.values()} == set(MEANINGS)
    assert set(SAMPLES) | set(ELSEWHERE) == set(CODES)


@pytest.mark.parametrize("code", SAMPLES)
def test_no_command_contradicts_what_a_finding_means(code, place, capsys):
    file = place / "cluster" / "job.yaml"
    file.write_text(SAMPLES[code])

    def ask(*words):
        answer = run([*words])
        return answer, *capsys.readouterr()

    linted = ask("lint", "cluster", "-o", "json")
    file.rename(place / "job.yaml")
    arrival = ask("would-run", "job.yaml", "--from", "cluster", "-o", "json")
    (place / "job.yaml").rename(file)
    moment = ask("simulate", "cluster", "-o", "json")
    why = ask("why", "train", "--no-verify", "--from", "cluster")
    meaning = CODES[code].meaning
    found = [each for each in json.loads(linted[1])["items"] if each["code"] == code]
    assert found
    assert {each["meaning"] for each in found} == {meaning}
    states = {each["name"]: each["state"] for each in json.loads(moment[1])["jobs"]}
    if meaning == REFUSAL:
        assert (arrival[0], moment[0], why[0]) == (4, 4, 4)
        assert all(code in each[2] for each in (arrival, moment, why))
        # Of an object that is defined twice the first is taken; of a text that cannot be read nothing is known.
        assert states.get("train") in ("Refused", None)
        assert code == "T004" or not any(word in each[1] for word in SAYS_START for each in (arrival, why))
    elif meaning == WAIT:
        assert (arrival[0], moment[0], why[0]) == (1, 0, 0)
        assert states["train"] in {"Waits", "Impossible"}
        assert not any(word in each[1] for word in SAYS_START for each in (arrival, why))
    else:
        assert meaning == ADVICE
        assert states["train"] in {"Starts", "Partial"}
        assert moment[0] == 0
        assert (code in moment[2]) == (code not in TOLD_BY_ANSWERS)


def test_a_bad_manifest_refuses_itself_with_all_its_faults(place, capsys):
    (place / "cluster" / "a.yaml").write_text(SAMPLES["J024"].replace("restartPolicy: Never", "restartPolicy: Alway"))
    (place / "cluster" / "b.yaml").write_text("a: [")
    (place / "cluster" / "c.yaml").write_text(JOB.replace("name: train", "name: good"))
    assert run(["simulate", "cluster", "-o", "json"]) == 4
    told = capsys.readouterr()
    states = {each["name"]: each["state"] for each in json.loads(told.out)["jobs"]}
    assert states == {"good": "Starts", "train": "Refused"}
    assert [line.split()[1] for line in told.err.splitlines() if line.startswith("cluster/")] == [
        "T001",
        "J024",
        "J024",
    ]
    assert run(["why", "good", "--no-verify", "--from", "cluster"]) == 4  # a file may hold more that concerns the job
    assert "J024" not in capsys.readouterr().err
