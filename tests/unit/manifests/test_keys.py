"""Labels and annotations that do not do what was meant: what `kai lint` says of each."""

import pytest

from kai.cli.failures import finding_text
from kai.manifests import documents_of, open_text, read
from kai.manifests.keys import KEYS, edits, nearest_key
from kai.manifests.lint import lint

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  %s
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: i}]
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  %s
spec:
  template:
    metadata: {%s}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: main, image: i}]
"""
NODE = """\
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {gpu-model: NVIDIA-H100-80GB-HBM3, kubernetes.io/hostname: n1}}
status: {allocatable: {cpu: "8", memory: 8Gi, nvidia.com/gpu: "8"}}
"""


def lint_text(text):
    source, values = open_text(text.encode(), "x.yaml")
    return lint(read(documents_of(source, values)))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('annotations: {gpu-fractoin: "0.5"}', "F005 gpu-fractoin is no key that counts"),
        ("labels: {kai.scheduler/queu: a}", "F005 kai.scheduler/queu is no key that counts"),
        ("labels: {kai-scheduler/queue: a}", "F005 kai-scheduler/queue is no key that counts"),
        ('annotations: {kai.scheduler/gpu-fraction: "0.5"}', "F005 kai.scheduler/gpu-fraction is no key that counts"),
        ("annotations: {kai.scheduler/colour: red}", "F006 kai reads no key kai.scheduler/colour"),
        (
            "labels: {kai.scheduler/preemptibility: nonpreemptible}",
            (
                "F007 kai.scheduler/preemptibility: found nonpreemptible, expected preemptible or non-preemptible: "
                "this value is ignored"
            ),
        ),
        (
            "annotations: {kai.scheduler/queue: a}",
            "J021 kai.scheduler/queue stands among annotations, and counts among labels",
        ),
        (
            "annotations: {kai.scheduler/allowed-namespaces: a}",
            "J021 kai.scheduler/allowed-namespaces stands on the Pod, not on a queue",
        ),
        (
            'annotations: {kai.scheduler/batch-min-member: "2"}',
            "",
        ),
    ],
)
def test_a_key_that_does_not_count_is_named(line, said):
    found = lint_text(POD % line)
    assert [f"{each.code} {each.message}" for each in found] == ([said] if said else [])


@pytest.mark.parametrize("key", ["app", "team", "user", "pod-template-hash", "example.com/gpu-fractoin", "mpss"])
def test_keys_of_others_are_no_mistakes(key):
    assert lint_text(POD % f"labels: {{{key}: x}}, annotations: {{{key}: x}}".replace(", annot", "\n  annot")) == []


def test_known_keys_and_program_annotations_lint_clean():
    for key, known in KEYS.items():
        value = known.values[0] if known.values else "1h" if known.is_duration else "x"
        kinds = {"workload": "Job", "pod": "Pod", "queue": "Queue", "namespace": "Namespace"}
        text = JOB if "workload" in known.on else POD.replace("Pod", kinds.get(min(known.on), "Pod"))
        places = (f'{known.as_}: {{{key}: "{value}"}}',) + (("",) if "workload" in known.on else ())
        codes = {each.code for each in lint_text(text % places)}
        assert not codes & {"F005", "F006", "F007", "J021"}, key
    assert lint_text(POD % "annotations: {kai.scheduler/last-start-timestamp: x}") == []


def test_gpu_and_minimum_annotations_count_only_where_read():
    found = lint_text(JOB % ('annotations: {gpu-fraction: "0.5"}', 'annotations: {gpu-memory: "4000"}'))
    assert [each.message for each in found] == ["gpu-fraction stands on the Job, not on its pods"]
    deployment = (JOB % ('annotations: {kai.scheduler/batch-min-member: "2"}', "")).replace(
        "kind: Job", "kind: ReplicaSet"
    )
    assert "J031" in [each.code for each in lint_text(deployment.replace("batch/v1", "apps/v1"))]


def test_a_misspelt_queue_key_is_reported_once_in_place():
    queue = "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: a}\nspec: {displayName: x}\n"
    text = "\n".join(finding_text(each) for each in lint_text(POD % "labels: {kai.scheduler/queu: a}" + queue))
    assert text.split("\n") == [
        "x.yaml:4:9: J001 no queue is named, and queue default-queue does not exist",
        "    4 |   name: p",
        "      |         ^",
        "x.yaml:5:12: F005 kai.scheduler/queu is no key that counts",
        "    5 |   labels: {kai.scheduler/queu: a}",
        "      |            ^^^^^^^^^^^^^^^^^^ is it kai.scheduler/queue?",
        "  help: kai.scheduler/queue:",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("image: i}", "image: i, resources: {limits: {nvidia.com/gpus: 1}}}", "J032 no node offers nvidia.com/gpus"),
        ("image: i}", "image: i, resources: {limits: {example.com/fpga: 1}}}", ""),
        (
            "containers:",
            "nodeSelector: {gpu-model: NVIDIA-H100-80G-HBM3}\n  containers:",
            "J033 no node has the label gpu-model=NVIDIA-H100-80G-HBM3",
        ),
        (
            "containers:",
            "nodeSelector: {gpu-model: nvidia-h100-80gb-hbm3}\n  containers:",
            "J033 no node has the label ",
        ),
        ("containers:", "nodeSelector: {gpu-modle: x}\n  containers:", "J033 no node has the label gpu-modle"),
        ("containers:", "nodeSelector: {gpu-model: A100}\n  containers:", ""),
    ],
)
def test_a_near_miss_of_a_nodes_value_is_reported(old, new, said):
    text = (POD % "labels: {app: x}").replace(old, new)
    found = [f"{each.code} {each.message}" for each in lint_text(text + NODE)]
    assert len(found) == bool(said)
    assert all(each.startswith(said) for each in found)
    assert lint_text(text) == []


def test_a_label_that_is_not_passed_on_is_reported():
    cron = (JOB % ("labels: {kai.scheduler/queue: a}", "")).split("spec:\n", 1)
    inner = "".join(f"    {line}\n" for line in cron[1].splitlines())
    text = (
        cron[0].replace("kind: Job", "kind: CronJob")
        + 'spec:\n  schedule: "0 3 * * *"\n  jobTemplate:\n    spec:\n'
        + inner
    )
    assert [each.message for each in lint_text(text)] == [
        "kai.scheduler/queue on the CronJob does not count, and the job is in queue default-queue"
    ]


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [("queue", "queue", 0), ("queu", "queue", 1), ("uqeue", "queue", 1), ("quueeuu", "queue", 3), ("a", "queue", 3)],
)
def test_edits_are_counted_up_to_a_bound(one, other, count):
    assert edits(one, other, 2) == count
    assert nearest_key("kai.scheduler/topology-required-placment") == "kai.scheduler/topology-required-placement"
