import io
import json
from functools import cache

import pytest

from kai.cli.command import run
from kai.cli.console import Console
from kai.cli.explaining.why import answer
from kai.cli.explaining.whyjobs import Asked, JobAnswer
from kai.cli.sources import Source
from kai.cli.tables import shown_width

CLUSTER = """
cluster: {nodes: {n1: {gpu: 4}, n2: {gpu: 4, labels: {type: x}, taints: [disk=bad]}}}
queues: {lab: {quota: 8}, a: {parent: lab, quota: 4}, b: {parent: lab, quota: 4}}
groups:
  runs: {queue: b, members: 2, preemptible: false, each: {gpu: 2}, runs_on: n1}
  big: {queue: a, each: {gpu: 4}}
  big2: {queue: a, each: {gpu: 4}}
  picky: {queue: a, each: {gpu: 1}, selector: {type: x}}
  lost: {queue: ab, each: {gpu: 1}}
"""


@pytest.fixture
def asked(tmp_path, capsys):
    def ask(*arguments, text=CLUSTER, code=0):
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        assert run(["why", *arguments, "-f", str(path)]) == code
        return capsys.readouterr()

    return ask


def test_a_waiting_job_prints_answer_then_evidence_then_suggestions(asked):
    lines = asked("picky").out.splitlines()
    assert lines[0].startswith("picky waits: no node matches: ")
    assert lines[1] == "NoNodeMatches · queue a · 1 pod, 1 GPU · waiting 57m · position 3"
    at = lines.index("To make it run")
    assert lines[at + 1].startswith("  toleration for disk=bad:NoSchedule  ✓ starts now on n2")


def test_changes_are_left_out_without_verification(asked):
    text = asked("picky", "--no-verify").out
    assert "✓" not in text
    assert "  No change was tried." in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("arguments", "counted"), [(("big",), "1 tried, 41 at most"), (("--all",), "job 2 of")])
def test_a_terminal_shows_and_clears_the_progress(asked, monkeypatch, arguments, counted):
    monkeypatch.setattr("kai.cli.console._SHORT", 0)
    monkeypatch.setenv("COLUMNS", "120")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    asked(*arguments)
    drawn = screen.getvalue()
    assert "\rtrying changes  " in drawn
    assert counted in drawn
    assert "\n" not in drawn
    assert drawn.rpartition("\r")[2] == ""
    assert drawn.split("\r")[-2].strip() == ""


def test_without_terminal_or_trial_no_progress_is_shown(asked, monkeypatch):
    monkeypatch.setattr("kai.cli.console._SHORT", 0)
    assert asked("--all").err == ""
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    asked("big", "--no-verify")
    asked("big", "-q")
    assert screen.getvalue() == ""


def test_texts_of_conditions_are_detail(asked):
    assert "wire" not in asked("big").out
    assert "\n  wire" in asked("big", "--detail").out


def test_a_running_job_prints_nodes_and_its_exit_code(asked):
    assert asked("runs", "--exit-code").out.splitlines()[0] == "runs runs on n1."
    asked("big", "--exit-code", code=1)
    asked("big")


def test_a_kind_before_the_name_says_what_is_meant(asked):
    assert asked("job/runs").out == asked("default/runs").out == asked("runs-0").out
    assert asked("podgroup.scheduling.run.ai/runs").out == asked("job/runs").out  # as `kai jobs -o name` prints it
    assert asked("queue/a").out.startswith("a is entitled to 4 GPUs: ")
    assert asked("node/n1").out.startswith("n1 is full: of 4 GPUs 4 used.")
    assert asked("n2").out.startswith("n2 is empty, 4 GPUs idle: it is tainted disk=bad:NoSchedule.")


def test_a_queue_names_its_next_waiting_jobs_first(asked):
    jobs = "".join(f"  job{number}: {{queue: a, each: {{gpu: 4}}}}\n" for number in range(12))
    text = CLUSTER.partition("  big:")[0] + jobs
    assert "12 of its jobs wait: job0, job1, job2, job3 and 8 more" in asked("queue/a", text=text).out.splitlines()


def test_a_job_that_loses_and_moves_pods_shows_both(asked):
    text = """
cluster: {nodes: {n1..n2: {gpu: 4}}}
queues: {root: {quota: 8}, a: {parent: root, quota: 0}, b: {parent: root, quota: 8}}
groups:
  lend: {queue: a, members: 5, minimum: 0, each: {gpu: 1}, runs_on: {n1: 3, n2: 2}}
  gang: {queue: b, members: 2, each: {gpu: 3}}
"""
    said = asked("lend", text=text).out
    assert said.startswith("lend runs with 1 of 5 pods, 3 pods for gang (reclaim) go; 1 pod moves from n1 to n2, which")
    told = "Pods that move start again on their new nodes, evicted pods once there is room for them again."
    assert told in said.splitlines()


def test_waiting_does_not_help_with_a_missing_topology(asked):
    picky = "  racked: {queue: a, each: {gpu: 1}, topology: {name: ghost, required: rack}}\n"
    said = asked("racked", text=CLUSTER + picky).out
    assert "  wait  does not help while there is no such topology" in said.splitlines()


def test_an_unknown_name_is_answered_with_the_nearest(asked):
    error = asked("pick", code=4).err.splitlines()
    assert error[0] == "error: found no job, queue or node pick"
    assert error[1].startswith("  help: kai why job/picky --from ")
    assert asked("node/n9", code=4).err.splitlines()[0] == "error: found no node n9"
    for kind in ("job", "queue", "node"):
        help_line = asked(f"{kind}/nothing-alike", code=4).err.splitlines()[1]
        assert help_line.startswith(f"  help: kai {kind}s --from ")
        assert help_line.endswith(f" lists the {kind}s")


def test_a_queue_outside_any_tree_prints_the_cause(asked):
    text = CLUSTER.replace("{parent: lab, quota: 4}, b:", "{parent: ghost, quota: 4}, b:")
    out = asked("queue/a", text=text).out
    assert out.startswith("queue a belongs to no tree: ghost, the parent of a, does not exist.")


def test_all_waiting_jobs_are_grouped_by_reason_in_order(asked):
    text = asked("--all").out
    assert text.startswith("4 jobs wait, for 3 reasons\n")
    codes = [line.partition(" · ")[0] for line in text.splitlines() if " · " in line]
    assert codes == ["QueueDoesNotExist", "NoNodeMatches", "NoRoom"]
    assert "NoRoom · queue a · 2 jobs, 2 pods, 8 GPUs" in text
    assert "  then    big2" in text


def test_hundreds_of_jobs_fit_a_screen_and_few_trials(asked, monkeypatch):
    from kai.answers.why import trials

    count, decide = [], trials.decide
    monkeypatch.setattr(trials, "decide", lambda *given, **more: count.append(1) or decide(*given, **more))
    groups = "".join(
        f"  j{at}: {{queue: a, members: {at % 3 + 1}, each: {{gpu: {at % 4 + 1}}}}}\n" for at in range(200)
    )
    text = asked("--all", text=CLUSTER + groups).out
    assert len(text.splitlines()) <= 40
    assert len(count) <= 240


def test_evicted_lists_the_victims_for_all_or_one(asked):
    text = CLUSTER.replace("quota: 4}, b: {parent: lab, quota: 4}", "quota: 8}, b: {parent: lab, quota: 0}")
    text = text.replace("preemptible: false, ", "")
    rows = asked("--evicted", text=text).out.splitlines()
    assert rows[2].split() == ["runs", "b", "2", "4", "reclaim", "big", "fair", "share"]
    assert asked("runs", "--evicted", text=text).out.splitlines()[2] == rows[2]
    assert asked("picky", "--evicted", text=text).out == "no pod has to go\n"
    assert asked("runs", text=text).out.splitlines()[0] == "runs is evicted: 2 pods for big (reclaim)."


def test_json_documents_have_an_envelope_and_namespaced_jobs(asked):
    found = json.loads(asked("picky", "-o", "json").out)
    assert (found["apiVersion"], found["kind"], found["state"]) == ("output.kai/v1", "Explanation", "Waits")
    assert found["subject"] == {
        "kind": "PodGroup",
        "namespace": "default",
        "name": "picky",
        "uid": found["subject"]["uid"],
    }
    assert (found["position"], found["waitingSeconds"]) == (3, 3420.0)
    assert found["suggestions"][0]["placement"] == [{"pod": "default/picky-0", "node": "n2"}]
    assert found["suggestions"][0]["patch"][0]["patch"][0]["path"] == "/spec/tolerations"
    assert (found["eta"], found["etaUnknown"]) == (None, "does not help while the nodes and the job stay as they are")
    queue = json.loads(asked("queue/a", "-o", "json").out)
    assert (queue["kind"], queue["fairShare"], queue["requested"]) == ("QueueExplanation", 4.0, 9.0)
    assert [step["step"] for step in queue["fairShareSteps"]] == ["quota", "surplus", "remainder"]
    node = json.loads(asked("node/n1", "-o", "json").out)
    assert node["users"] == [{"job": "default/runs", "queue": "b", "pods": 2, "gpus": 4.0, "state": "running"}]
    many = json.loads(asked("--all", "-o", "json").out)
    assert [item["reason"]["code"] for item in many["items"]] == ["QueueDoesNotExist", "NoNodeMatches", "NoRoom"]


def test_names_are_those_of_kubectl(asked):
    assert asked("picky", "-o", "name").out == "podgroup.scheduling.run.ai/picky\n"
    assert asked("queue/a", "-o", "name").out == "queue.scheduling.run.ai/a\n"
    assert asked("node/n1", "-o", "name").out == "node/n1\n"


def test_the_list_of_reasons_fits_a_narrow_terminal(asked, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, asked("--all").out.splitlines())) <= 40


@pytest.mark.parametrize("arguments", [(), ("--all", "x"), ("--all", "--evicted")])
def test_a_question_without_a_subject_is_refused(asked, arguments):
    asked(*arguments, code=2)


def test_all_with_a_label_keeps_only_labelled_jobs(capsys):
    assert run(["why", "--all", "--from", "examples/lab", "-l", "no-such-label=x", "--no-verify"]) == 0
    assert capsys.readouterr().out.startswith("no job waits")


def test_every_job_of_the_lab_fits_the_terminal_width():
    result = _lab()
    view = JobAnswer.of(result.outcome, result.overview, result.lines, Asked(name="any"))
    text = view.text(Console(columns=60))
    for width in (60, 80, 120, 200):
        shown = view.text(Console(columns=width)).splitlines()
        assert [line for line in shown if shown_width(line) > width] == []
    assert "chat-1-burst keeps 6 of 7 pods, on gpu-03: 1 pod for chat-5\n  (preempt)." in text
    long = "  selector nvidia.com/gpu.product NVIDIA-A100-SXM4-40GB ->\n    NVIDIA-H100-80GB-HBM3\n      ~ starts"
    assert long in text


@pytest.mark.parametrize("subject", ["queue/vision", "queue/chat", "node/gpu-06", "node/gpu-13"])
def test_queues_and_nodes_fit_the_terminal_width(subject):
    source = Source(place="examples/lab")
    view, _ = answer(source, _lab(), Asked(name=subject))
    for width in (60, 80):
        assert max(map(shown_width, view.text(Console(columns=width)).splitlines())) <= width
    assert view.text(Console(columns=200)).splitlines()[0] == view.text(Console(columns=0)).splitlines()[0]


@pytest.mark.parametrize(
    ("queue", "heads", "row"),
    [
        ("vision", "QUEUE ASKS QUOTA LIMIT WEIGHT USED FAIR SHARE", "vision 64 32 40 1 32 32"),
        ("chat", "QUEUE ASKS QUOTA WEIGHT USED FAIR SHARE", "chat 35 12 1 12 12"),
    ],
)
def test_limits_stand_beside_quotas_where_a_queue_has_one(queue, heads, row):
    view, _ = answer(Source(place="examples/lab"), _lab(), Asked(name=f"queue/{queue}"))
    lines = [" ".join(line.split()) for line in view.text(Console()).splitlines()]
    assert row == lines[lines.index(heads) + 1]


@cache
def _lab():
    return Source(place="examples/lab").decide()


OTHERS = """
apiVersion: batch/v1
kind: Job
metadata: {name: misspelled, namespace: x, labels: {kai.scheduler/queue: a}}
spec: {template: {spec: {restartPolicy: Never, schedulerName: kai-schedular, containers: [{name: m, image: i}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: held, namespace: x, labels: {kai.scheduler/queue: a}}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, schedulerName: kai-scheduler, containers: [{name: m, image: i}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: other-abc, namespace: x, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: other, uid: u}]}
spec: {nodeName: n1, containers: [{name: m, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: astray, namespace: x, annotations: {pod-group-name: nope}}
spec: {schedulerName: kai-scheduler, containers: [{name: m, image: i}]}
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("misspelled", "Job misspelled: its pods are for scheduler kai-schedular, not for kai-scheduler"),
        ("x/misspelled", "Job misspelled: its pods are for scheduler kai-schedular, not for kai-scheduler"),
        ("job/held", "Job held: suspended, finished or scaled to 0, so it has no pods now"),
        ("other", "Job other: its pods are for scheduler default-scheduler, not for kai-scheduler"),
        ("po/other-abc", "Pod other-abc: it is for scheduler default-scheduler, not for kai-scheduler"),
        ("astray", "Pod astray: the pod group that its annotation names is not there"),
    ],
)
def test_a_pod_of_another_scheduler_is_refused_with_reason(asked, name, said):
    lines = asked(name, text=OTHERS, code=4).err.splitlines()
    other = "kai-schedular" if "kai-schedular" in said else "default-scheduler"
    assert lines[0] == f"error: kai does not place {said}"
    assert lines[1:] == (
        [
            (
                "  help: schedulerName: kai-scheduler in its pods gives it to kai; "
                f"--scheduler-name {other} asks what kai would do with it"
            )
        ]
        if "for scheduler" in said
        else []
    )


@pytest.mark.parametrize("name", ["y/misspelled", "queue/misspelled", "deployment/misspelled"])
def test_a_foreign_job_answers_only_to_its_own_name(asked, name):
    assert asked(name, text=OTHERS, code=4).err.startswith("error: found no ")


FREE = {"quota": -1, "limit": -1}


def displayed(name, title, **spec):
    gpu = {"quota": 2, "limit": -1, "overQuotaWeight": 1, **spec.pop("gpu", {})}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"displayName": title, "resources": {"gpu": gpu, "cpu": FREE, "memory": FREE}, **spec},
    }


def gpu_pod(name, queue, gpus, node=""):
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "m", "image": "i", "resources": resources}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "x", "labels": {"kai.scheduler/queue": queue}},
        "spec": {**spec, "nodeName": node} if node else spec,
        "status": {"phase": "Running" if node else "Pending"},
    }


def teams(*pods):
    amounts = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "4", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": amounts}}
    queues = (
        displayed("dep-1f", "Team"),
        displayed("team-7f", "Team", parentQueue="dep-1f"),
        displayed("team-9c", "Other", gpu={"limit": 3}),
    )
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *queues, *pods]})


def test_reasons_use_the_display_name_of_a_queue(asked):
    text = teams(gpu_pod("p", "team-9c", 4))
    lines = asked("p", text=text).out.splitlines()
    assert lines[0] == "p waits: queue team-9c may not use more than 3 GPUs, and this job would make it 4 GPUs."
    assert lines[3].startswith("  team-9c  limit 3   used 0   this job 4   over by 1")
    assert json.loads(asked("p", "-o", "json", text=text).out)["reason"]["queue"] == "team-9c"


def test_a_job_in_a_parent_queue_names_allowed_labels(asked):
    (first, *_) = asked("p", text=teams(gpu_pod("p", "dep-1f", 1))).out.splitlines()
    assert first == "p waits: dep-1f is not a leaf queue; submit to team-7f."


def test_an_eviction_compares_queues_by_their_display_names(asked):
    text = teams(gpu_pod("old", "team-7f", 4, node="n1"), gpu_pod("new", "team-9c", 2))
    compared = asked("old", text=text).out.splitlines()[-1]
    assert compared.startswith(
        "  reclaim for new: dep-1f (with team-7f) used 4 GPUs, fair share 2; team-9c used 0 GPUs"
    )


@pytest.mark.parametrize("typed", ["Other", "queue/Other"])
def test_a_typed_display_name_hints_at_the_queue_name(asked, typed):
    lines = asked(typed, text=teams(), code=4).err.splitlines()
    assert lines[0] == "error: Other is the display name of queue team-9c, expected the name"
    assert lines[1].startswith("  help: kai why queue/team-9c --from ")


NO_CPU = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110", nvidia.com/gpu: "2"}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: top}
spec: {resources: {gpu: {quota: 2, limit: -1}}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: a}
spec: {parentQueue: top, resources: {gpu: {quota: 2, limit: -1}}}
---
apiVersion: v1
kind: Pod
metadata: {name: j, labels: {kai.scheduler/queue: a}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: m, image: i, resources: {limits: {nvidia.com/gpu: 1, cpu: 4, memory: 1Gi}}}]
"""


def test_queues_that_may_use_no_cpu_are_mended_together(asked):
    lines = asked("j", text=NO_CPU).out.splitlines()
    assert lines[0].startswith("j waits: queue a may not use more than 0 cores")
    change = " ".join(lines[lines.index("To make it run") + 1].split())
    assert change == "cpu and memory: {quota: -1, limit: -1} in queues a, top ✓ starts now on n1"
