import json
import re

import attrs
import pytest

from kai.answers.documents.jobs import job_lines
from kai.cli.arguments import read_selector
from kai.cli.command import run
from kai.cli.console import Console
from kai.cli.listing.jobs import Wanted, job_view
from kai.cli.sources import Source
from kai.cli.tables import shown_width

LAB = Source(place="examples/lab")
REPLICAS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {nvidia.com/gpu: "2", cpu: "8", memory: 8Gi, pods: "9"}, conditions: [{type: Ready, status: "True"}]}}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: root}, spec: {resources: {gpu: {quota: 2, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: a}, spec: {parentQueue: root, resources: {gpu: {quota: 2, limit: 2}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}}
"""  # noqa: E501 - a manifest is one line


def manifests(count):
    document = __import__("yaml").safe_load(REPLICAS)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "w", "controller": True}
    for number in range(count):
        meta = {"name": f"web-{number}", "namespace": "x", "uid": f"g{number}", "labels": {"app": "web"}}
        document["items"] += [
            {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": {**meta, "ownerReferences": [owner]},
                "spec": {"queue": "a", "minMember": 1},
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **meta,
                    "uid": f"p{number}",
                    "creationTimestamp": f"2026-01-01T00:0{number}:00Z",
                    "annotations": {"pod-group-name": f"web-{number}"},
                },
                "spec": {
                    "schedulerName": "kai-scheduler",
                    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                },
            },
        ]
    return json.dumps(document)


@pytest.fixture(scope="module")
def lab():
    return LAB.decide()


def text(result, *, width=0, source=LAB, **wanted):
    return job_view(source, result, Wanted(**wanted)).text(Console(columns=width))


def test_waiting_jobs_are_listed_in_queue_order(lab):
    assert text(lab, queue="training", width=108).splitlines() == [
        "JOB           QUEUE     PRIO  GPUS  PODS  STATE       SINCE  POS  REASON",
        "llm-pretrain  language    50    32   4/4  Running     3h51m    -  -",
        "llm-sft-a     language    50     8   2/2  Starts        12m    -  -",
        "segment-a     vision      50     8   1/1  Running     2h51m    -  -",
        "vit-base      vision      50     8   1/1  Running     2h21m    -  -",
        "pp-train      language    50    30   0/5  Impossible     5m    1  DomainTooSmall  its 5 pods (30 GPUs) …",
        "rl-sim        language    50     4   0/1  Waits          4m    2  NoNodeMatches   no node matches: 12 …",
        "vit-large     vision      50    16   0/2  Held           7m    1  HeldForLeaving  its places on gpu-04, …",
        "vit-xl        vision      50    32   0/4  Waits          6m    2  OverLimit       queue vision may not use …",
    ]


def test_a_narrow_terminal_keeps_the_reason_and_drops_columns(lab):
    assert text(lab, queue="training", state="waiting", width=60).splitlines() == [
        "JOB        QUEUE     GPUS  PODS  STATE       REASON",
        "pp-train   language    30   0/5  Impossible  DomainTooSmall",
        "rl-sim     language     4   0/1  Waits       NoNodeMatches",
        "vit-large  vision      16   0/2  Held        HeldForLeaving",
        "vit-xl     vision      32   0/4  Waits       OverLimit",
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("wanted", [{}, {"pods": True}, {"order": True}])
def test_no_line_is_wider_than_the_terminal(lab, width, wanted):
    assert max(map(shown_width, text(lab, width=width, **wanted).splitlines())) <= width


def test_pods_are_listed_with_their_nodes(lab):
    lines = text(lab, queue="vision", pods=True).splitlines()
    assert lines[0] == "POD          JOB        QUEUE   GPUS  STATE    NODE"
    assert lines[3] == "vit-large-0  vit-large  vision     8  Held     gpu-04"
    assert lines[-1] == "vit-xl-3     vit-xl     vision     8  Waits    -"


def test_the_order_is_shown_key_by_key(lab):
    assert text(lab, queue="chat", order=True).splitlines() == [
        "POS  JOB           QUEUE  PRIORITY  ELASTIC  REASON",
        "  1  chat-5        chat       -125        0  HeldForLeaving",
        "  2  serve-llm     chat       -125        0  NonPreemptibleOverQuota",
        "  3  chat-4-burst  chat        -60        2  Evicted",
        "smaller keys go first, from left to right; ties go by age",
    ]


@pytest.mark.parametrize(
    ("sort", "first"),
    [("gpus", "llm-pretrain"), ("name", "llm-pretrain"), ("since", "llm-pretrain"), ("position", "pp-train")],
)
def test_jobs_can_be_sorted_by_a_column(lab, sort, first):
    assert text(lab, queue="training", sort=sort).splitlines()[1].startswith(first)


def test_a_namespace_counts_the_hidden_jobs_of_others(lab):
    source = attrs.evolve(LAB, namespace="nope")
    assert text(lab, source=source) == "no jobs\n48 jobs of other namespaces not shown (-A)"


def test_labels_choose_jobs(tmp_path):
    path = tmp_path / "web.json"
    path.write_text(manifests(1))
    source = Source(place=str(path), selector=read_selector("app=db"))
    assert text(source.decide(), source=source) == "no jobs"


def test_replicas_of_one_owner_are_one_line_and_unfold(tmp_path):
    path = tmp_path / "web.json"
    path.write_text(manifests(4))
    result = Source(place=str(path)).decide()
    assert text(result, width=108).splitlines() == [
        "JOB  QUEUE  PRIO  GPUS  PODS  STATE    SINCE  POS  REASON",
        "web  a        50     4   2/4  Partial     1m    1  OverLimit  queue a may not use more than 2 GPUs, and …",
    ]
    assert [line.split()[:2] for line in text(result, pods=True).splitlines()[1:]] == [
        [f"web-{number}", f"web-{number}"] for number in range(4)
    ]


def test_many_equal_jobs_are_folded_into_a_count(lab):
    lines = text(lab, width=80).splitlines()
    assert lines[-1] == "… 19 more of search: all Running (--all)"
    names = [line.split()[0] for line in lines if " search " in line and " Running " in line]
    assert names == ["rank-1", "rank-2", "rank-3"]
    assert len(text(lab, width=80, everything=True).splitlines()) == len(text(lab).splitlines()) == 49


def test_every_state_that_there_is_can_be_asked_for(lab):
    assert text(lab, state="finished").startswith("no jobs")
    assert text(lab, state="evicted").splitlines()[1].startswith("chat-2-burst")


def test_json_has_each_pod_group_with_all_fields(capsys, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert run(["jobs", "-f", "examples/lab", "--queue", "vision", "--state", "waits", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert re.fullmatch("[0-9a-f]{64}", document["source"].pop("sha256"))
    (item,) = document.pop("items")
    assert document == {
        "apiVersion": "output.kai/v1",
        "kind": "JobList",
        "generatedAt": "1970-01-01T00:00:00Z",
        "source": {"type": "manifests", "cluster": None, "revision": None, "complete": True},
        "program": {"version": document["program"]["version"]},
    }
    assert item == {
        "name": "vit-xl",
        "namespace": "lab",
        "uid": "vit-xl",
        "owner": None,
        "queue": "vision",
        "priority": 50,
        "preemptible": True,
        "minMember": 4,
        "pods": {"wanted": 4, "running": 0, "waiting": 4},
        "gpus": 32.0,
        "gpusHeld": 0.0,
        "gpuMemoryBytes": 0,
        "gpusByMemory": 0.0,
        "nodes": [],
        "state": "Waits",
        "since": "2026-11-21T12:46:00Z",
        "position": 2,
        "orderKeys": [{"name": "priority", "value": -50.0}, {"name": "elastic", "value": 0.0}],
        "reason": {
            "code": "OverLimit",
            "text": "queue vision may not use more than 40 GPUs, and this job would make it 48 GPUs",
        },
        "endsInSeconds": None,
        "labels": {},
    }


MEMORY = """
about: Memory of GPUs on two kinds of them.
cluster: {nodes: {n1: {gpu: 1, gpu_memory: 80000}, n2: {gpu: 1, gpu_memory: 40000}}}
queues: {root: {quota: 2}, a: {parent: root, quota: 2}}
groups:
  runs: {queue: a, members: 2, minimum: 1, each: {gpu_memory: 40000}, runs_on: n1}
  small: {queue: a, each: {gpu_memory: 30000}, runs_on: n2}
  waits: {queue: a, each: {gpu_memory: 30000}}
"""


def test_requested_gpu_memory_shows_as_memory_and_counts_held(capsys, tmp_path):
    path = tmp_path / "memory.yaml"
    path.write_text(MEMORY)
    assert run(["jobs", "-f", str(path), "-o", "json", "--pods"]) == 0
    document = json.loads(capsys.readouterr().out)
    keys = ("gpus", "gpusHeld", "gpusByMemory", "gpuMemoryBytes")
    found = {item["name"]: tuple(item[key] for key in keys) for item in document["items"]}
    assert found == {
        "runs": (1.0, 1.0, 1.0, 80000 * 2**20),
        "small": (0.75, 0.75, 0.75, 30000 * 2**20),
        "waits": (0.75, 0.0, 0.75, 30000 * 2**20),
    }
    pods = {pod["name"]: pod for item in document["items"] for pod in item["podList"]}
    assert (pods["runs-0"]["gpus"], pods["runs-0"]["gpusHeld"], pods["waits-0"]["gpusHeld"]) == (0.5, 0.5, 0.0)
    assert run(["queues", "-f", str(path), "-o", "json"]) == 0
    queues = {item["name"]: item["gpus"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert queues["a"]["requested"] == sum(gpus for gpus, *_ in found.values())
    assert queues["a"]["used"] == sum(held for _, held, *_ in found.values())
    # What a service answers is drawn as what the command finds out itself.
    source = Source(place=str(path))
    result = source.decide()
    wide = job_view(source, result, Wanted()).text(Console(output="wide"))
    assert [line.split()[:5] for line in wide.splitlines()] == [
        ["JOB", "QUEUE", "PRIO", "GPUS", "HELD"],
        ["default/runs", "a", "50", "80000Mi", "1"],
        ["default/small", "a", "50", "30000Mi", "0.75"],
        ["default/waits", "a", "50", "30000Mi", "0"],
    ]
    assert {item["name"]: job_of(item) for item in document["items"]} == {
        "runs": ("80000Mi", 1000, ["40000Mi", "40000Mi"]),
        "small": ("30000Mi", 750, ["30000Mi"]),
        "waits": ("30000Mi", 0, ["30000Mi"]),
    }


def job_of(item):
    ((line, *_),) = (job_lines({"items": [item]}),)
    return line.job.gpus_text, line.job.gpus_held, [pod.gpus_text for pod in line.pods]


def test_names_are_what_kubectl_takes(capsys):
    assert run(["jobs", "-f", "examples/lab", "--queue", "vision", "--state", "waits", "-o", "name"]) == 0
    assert capsys.readouterr().out == "podgroup.scheduling.run.ai/vit-xl\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--queue", "visio"], 4, "error: command line: --queue: found 'visio', expected one of chat, inference, lab"),
        (["--state", "foo"], 2, "error: --state: found 'foo', expected one of empty, evicted, finished"),
        (["--pods", "--order"], 2, "error: --pods and --order cannot be used together"),
        (["--sort", "x"], 2, "error: Invalid value for '--sort': 'x' is not one of 'queue'"),
    ],
)
def test_wrong_flags_are_told_on_one_line(capsys, arguments, code, words):
    assert run(["jobs", "-f", "examples/lab", *arguments]) == code
    assert capsys.readouterr().err.startswith(words)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_an_evicted_row_shows_the_action_and_one_state(lab, width):
    lines = text(lab, width=width, state="evicted").splitlines()[1:]
    assert lines
    assert all(line.count("Evicted") == 1 and "Reclaim" in line for line in lines)


def test_the_queue_order_is_computed_only_for_waiting_jobs(tmp_path, monkeypatch):
    def order(*_):
        raise AssertionError("asked for the order of queues")

    for count in (2, 3):
        (tmp_path / f"{count}.json").write_text(manifests(count))
    settled, crowded = (Source(place=str(tmp_path / f"{count}.json")).decide() for count in (2, 3))
    monkeypatch.setattr("kai.answers.outcomes.job_lines.explained_order", order)
    assert [(line.position, line.keys, line.waits) for line in settled.lines] == [(None, (), False)] * 2
    with pytest.raises(AssertionError):
        _ = crowded.lines


def test_leaving_pods_do_not_count_as_waiting(capsys):
    assert run(["jobs", "--from", "examples/lab", "-o", "json"]) == 0
    jobs = {each["name"]: each for each in json.loads(capsys.readouterr().out)["items"]}
    assert run(["jobs", "--from", "examples/lab", "--state", "waiting", "-o", "json"]) == 0
    listed = {each["name"] for each in json.loads(capsys.readouterr().out)["items"]}
    assert jobs["chat-2-burst"]["state"] == jobs["chat-4-burst"]["state"] == "Evicted"
    assert (jobs["chat-2-burst"]["pods"]["waiting"], jobs["chat-4-burst"]["pods"]["waiting"]) == (0, 2)
    assert {name for name, each in jobs.items() if each["pods"]["waiting"]} == listed


LIMITED = """
about: Of two jobs that run, one has a limit.
cluster: {nodes: {n1: {gpu: 2}}}
queues: {a: {quota: 2}}
groups:
  limited: {queue: a, each: {gpu: 1}, runs_on: n1, started: 10m, annotations: {kai.scheduler/max-runtime: 1h}}
  free: {queue: a, each: {gpu: 1}, runs_on: n1}
run: [allocate]
expect: {free: running on n1}
"""


def test_a_job_with_a_limit_says_when_it_ends(capsys, tmp_path):
    (tmp_path / "case.yaml").write_text(LIMITED)
    assert run(["jobs", "-f", str(tmp_path / "case.yaml"), "-o", "json"]) == 0
    found = {each["name"]: each["endsInSeconds"] for each in json.loads(capsys.readouterr().out)["items"]}
    assert found == {"limited": 3000.0, "free": None}
    assert run(["jobs", "-f", str(tmp_path / "case.yaml")]) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "ends in" in each)
    assert (line.split()[0], line.endswith("ends in 50m at the latest")) == ("limited", True)
