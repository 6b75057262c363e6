import json

import pytest

from kai.cli.command import run
from kai.cli.console import Console
from kai.cli.listing.queues import CPU, GPU, MEMORY, queue_view
from kai.cli.sources import Source
from kai.cli.tables import shown_width

LAB = Source(place="examples/lab")


@pytest.fixture(scope="module")
def lab():
    return LAB.decide()


def text(result, *, queue="", resource=None, flat=False, width=0):
    return queue_view(LAB, result, queue, resource, flat=flat).text(Console(columns=width))


def test_queues_are_a_tree_with_bars(lab):
    assert text(lab, width=120).splitlines() == [
        "QUEUE           QUOTA  LIMIT  FAIR  USED   WANT  RUN/WAIT  0 GPUs    25        50        75       100",
        "lab               100      -   100   100  225.5      34/9  ████████████████████████████████████████»",
        "├─ inference       20      -    20    24   51.5      29/4  ████████◆▓░░░░░░░░░░░",
        "│  ├─ chat         12      -    12    12     35       5/3  █████◆░░░░░░░░",
        "│  └─ search        8      -     8    12   16.5      24/1  ███◆▓░░",
        "├─ scratch          0      -     0     4     36       1/1  ◆▓░░░░░░░░░░░░",
        "└─ training        80      -    80    72    138       4/4  █████████████████████████████░░░◆░░░░░░░»",
        "   ├─ language     48      -    48    40     74       2/2  ████████████████░░░◆░░░░░░░░░░",
        "   └─ vision       32     40    32    32     64       2/2  █████████████◆░░]░░░░░░░░░",
        "█ used  ▓ used above fair share (can be reclaimed)  ░ wanted  ◆ fair share  | quota  ] limit  » more",
        "language wants 34 GPUs more and is below its fair share. kai why queue/language",
    ]


def test_a_named_queue_is_drawn_as_its_own_tree(lab):
    assert text(lab, queue="training", width=80).splitlines() == [
        "QUEUE        QUOTA  LIMIT  FAIR  USED  WANT  RUN/WAIT  0 GPUs     50    75   100",
        "training        80      -    80    72   138       4/4  █████████████████░◆░░░░»",
        "├─ language     48      -    48    40    74       2/2  █████████░░◆░░░░░",
        "└─ vision       32     40    32    32    64       2/2  ███████◆░]░░░░░",
        "█ used  ▓ used above fair share (can be reclaimed)  ░ wanted  ◆ fair share",
        "| quota  ] limit  » more",
        "language wants 34 GPUs more and is below its fair share. kai why queue/language",
    ]


NODE = """
apiVersion: v1
kind: Node
metadata: {name: m}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
QUEUE = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: q}
spec: {resources: {gpu: {quota: 1, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {kai.scheduler/queue: q}}
spec:
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: a, image: a, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
HEAD = "QUEUE  QUOTA  LIMIT  FAIR  USED  WANT  RUN/WAIT"
LEGEND = "█ used  ▓ used above fair share (can be reclaimed)  ░ wanted  ◆ fair share  | quota  ] limit  » more"


@pytest.mark.parametrize(
    ("objects", "resource", "head", "below"),
    [
        (QUEUE, None, HEAD, "no bars are drawn: there are no GPUs, no CPU cores and no memory to share"),
        (QUEUE + "---" + NODE, None, f"{HEAD}  0 CORES   1         2         3          4", LEGEND),
        (QUEUE + "---" + NODE, GPU, HEAD, "no bars are drawn: there are no GPUs to share"),
        (QUEUE + "---" + NODE.replace("memory: 8Gi, ", ""), MEMORY, HEAD, "no bars are drawn: there {} to share"),
    ],
)
def test_with_no_resources_a_sentence_replaces_the_bars(tmp_path, objects, resource, head, below):
    path = tmp_path / "cluster.yaml"
    path.write_text(objects)
    lines = text(Source(place=str(path)).decide(), resource=resource).splitlines()
    assert lines[0] == head
    assert lines[2] == below.format("are no GPUs and no memory")
    if resource == GPU:
        assert lines[3] == "q wants 1 GPU more and is below its fair share. kai why queue/q"


def test_numbers_of_a_large_cluster_are_written_out(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("""
about: x
cluster: {nodes: {n1..n20: {gpu: 800}}}
queues: {lab: {quota: 16000}, a: {parent: lab, quota: 16000}}
groups: {g: {queue: a, members: 2, minimum: 0, each: {gpu: 20000}}}
""")
    result = Source(place=str(path)).decide()
    assert queue_view(LAB, result, "", None, flat=False).text(Console(columns=110)).splitlines()[:3] == [
        "QUEUE  QUOTA  LIMIT   FAIR  USED   WANT  RUN/WAIT  0 GPUs    4000      8000      12000  16000",
        "lab    16000      -  16000     0  40000       0/1  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░»",
        "└─ a   16000      -  16000     0  40000       0/1  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░»",
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("resource", [GPU, CPU])
def test_no_line_is_wider_than_the_terminal(lab, width, resource):
    assert max(map(shown_width, text(lab, resource=resource, width=width).splitlines())) <= width


def test_a_flat_list_is_by_name(lab):
    names = [line.split()[0] for line in text(lab, flat=True).splitlines()[1:9]]
    assert names == ["chat", "inference", "lab", "language", "scratch", "search", "training", "vision"]


def test_json_has_every_resource_of_a_queue(capsys):
    assert run(["queues", "vision", "-f", "examples/lab", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "QueueList"
    (item,) = document["items"]
    assert (item["name"], item["parent"], item["leaf"], item["jobsRunning"]) == ("vision", "training", True, 2)
    assert item["gpus"] == {
        "quota": 32.0,
        "limit": 40.0,
        "unlimited": False,
        "fairShare": 32.0,
        "used": 32.0,
        "usedNonPreemptible": 0.0,
        "requested": 64.0,
        "weight": 1.0,
        "usage": 0.0,
    }


def test_names_are_what_kubectl_takes(capsys):
    assert run(["queues", "vision", "-f", "examples/lab", "-o", "name"]) == 0
    assert capsys.readouterr().out == "queue.scheduling.run.ai/vision\n"


def test_an_unknown_queue_is_refused_on_one_line(capsys):
    assert run(["queues", "x", "-f", "examples/lab"]) == 4
    assert capsys.readouterr().err == (
        "error: command line: QUEUE: found 'x', expected one of chat, inference, lab, language, scratch, search, "
        "training, vision\n"
    )


def test_documents_tell_how_each_share_came_about(lab):
    from kai.answers.outcomes.entitlement import entitlement

    items = {item["name"]: item for item in queue_view(LAB, lab, "", None, flat=False).fields()["items"]}
    for name, item in items.items():
        found = entitlement(lab.outcome, lab.overview, name)
        assert [step["given"] for step in item["fairShareSteps"]] == [step.given / 1000 for step in found.steps]
        assert sum(step["given"] for step in item["fairShareSteps"]) == pytest.approx(item["gpus"]["fairShare"])


@pytest.mark.parametrize(
    ("parent", "said"),
    [
        ("a", "queue a belongs to no tree: its parents form a circle, a -> a (QueueCycle)"),
        ("ghost", "queue a belongs to no tree: ghost, the parent of a, does not exist (QueueOrphaned)"),
    ],
)
def test_queues_of_no_tree_are_listed_with_the_cause(tmp_path, capsys, parent, said):
    path = tmp_path / "case.yaml"
    for more in ("", ", b: {quota: 1}"):
        path.write_text(f"cluster: {{nodes: {{n1: {{gpu: 4}}}}}}\nqueues: {{a: {{parent: {parent}}}{more}}}\n")
        assert run(["queues", "--from", str(path)]) == 0
        assert said in capsys.readouterr().out.splitlines()
        assert run(["queues", "--from", str(path), "-o", "json"]) == 0
        assert [each["name"] for each in json.loads(capsys.readouterr().out)["leftOut"]] == ["a"]
        assert run(["queues", "a", "--from", str(path)]) == 4
        assert said in capsys.readouterr().err


CLOCKED = """
cluster: {nodes: {n1: {gpu: 8}}}
queues:
  lab: {quota: 8}
  night:
    parent: lab
    quota: 2
    limit: 2
    schedules: {nights: {start: "30 22 * * *", zone: Europe/Berlin, duration: 8h, quota: 8, limit: 8}}
groups:
  batch: {queue: night, each: {gpu: 8}}
"""


PLAIN_CLOCKED = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: night}
spec:
  resources: {gpu: {quota: 2, limit: 2}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
  schedules:
  - {name: nights, timeZone: UTC, start: "0 20 * * *", duration: 12h, resources: {gpu: {quota: 8, limit: 8}}}
"""


@pytest.fixture
def clocked(tmp_path):
    path = tmp_path / "clocked.yaml"
    path.write_text(CLOCKED)
    return str(path)


def test_a_week_has_a_row_per_day_and_shades(clocked, capsys):
    run(["queues", "--week", "-f", clocked])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "night: quota of GPUs, on the clock of Europe/Berlin"
    assert [line.split()[0] for line in lines[2:9]] == ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    assert {line.split()[1] for line in lines[2:9]} == {"█" * 13 + "░" * 32 + "█" * 3}
    assert lines[9].split() == ["░", "2", "█", "8"]


def test_a_week_without_windows_says_so(capsys):
    run(["queues", "--week", "-f", "examples/lab"])
    assert capsys.readouterr().out == "no queue has a quota that follows the clock (spec.schedules)\n"


def test_a_time_of_day_uses_the_quotas_of_then(clocked, capsys):
    run(["queues", "--flat", "-f", clocked])
    by_day = capsys.readouterr().out
    run(["queues", "--flat", "--at", "Fri 22:30 Europe/Berlin", "-f", clocked])
    at_night = capsys.readouterr().out
    assert [line.split()[1:5] for line in by_day.splitlines() if line.startswith("night  ")] == [["2", "2", "2", "0"]]
    assert [line.split()[1:5] for line in at_night.splitlines() if line.startswith("night  ")] == [["8", "8", "8", "8"]]


def test_manifests_without_a_time_say_whose_quotas_are_shown(tmp_path, capsys):
    path = tmp_path / "plain.yaml"
    path.write_text(PLAIN_CLOCKED)
    run(["queues", "-f", str(path)])
    assert "these are for Thu 00:00 UTC; --at chooses a time" in capsys.readouterr().err
    run(["queues", "--at", "Fri 12:00", "-f", str(path)])
    assert "--at chooses" not in capsys.readouterr().err


def test_a_time_that_no_clock_shows_is_refused(clocked, capsys):
    assert run(["queues", "--at", "Fri 25:00", "-f", clocked]) == 2
    assert "--at: found" in capsys.readouterr().err


def test_why_says_until_when_a_limit_holds(clocked, capsys):
    run(["why", "batch", "-f", clocked])
    said = capsys.readouterr().out
    assert "may not use more than 2 GPUs until Thu 22:30 (Europe/Berlin), and this job would make it 8 GPUs" in said
    assert "its limit is 2 until Thu 22:30 (Europe/Berlin), then 8" in said
    assert "until Thu 22:30 (Europe/Berlin), when the limit of night rises" in said


USERS_CLOCKED = """
cluster: {nodes: {n1: {gpu: 8}}}
queues:
  lab: {}
  team:
    parent: lab
    per_user: 1
    schedules: {nights: {start: "30 22 * * *", zone: Europe/Berlin, duration: 8h, per_user: 4}}
groups:
  batch: {queue: team, user: maria, each: {gpu: 2}}
"""


def test_limits_of_users_follow_the_clock(tmp_path, capsys):
    path = tmp_path / "users.yaml"
    path.write_text(USERS_CLOCKED)
    run(["why", "batch", "-f", str(path)])
    said = capsys.readouterr().out
    assert "a user of queue team may not hold more than 1 GPU until Thu 22:30 (Europe/Berlin); maria holds 0" in said
    assert "its limit of each user is 1 until Thu 22:30 (Europe/Berlin), then 4" in said
    assert "until Thu 22:30 (Europe/Berlin), when the limit of each user of team rises" in said
    limits = []
    for flags in ([], ["--at", "Fri 22:30 Europe/Berlin"]):
        run(["queues", "-o", "json", *flags, "-f", str(path)])
        (team,) = [each for each in json.loads(capsys.readouterr().out)["items"] if each["name"] == "team"]
        limits += [each["limit"] for each in team["users"]]
    assert limits == [1, 4]


def test_use_by_model_stands_below_the_tree(tmp_path):
    place = tmp_path / "models.yaml"
    place.write_text(
        "about: x\n"
        "cluster: {nodes: {n1: {gpu: 4, model: h100, gpu_memory: 80000}}}\n"
        "queues: {root: {}, a: {parent: root, models: {h100: 2, l4: -1}}}\n"
        "groups: {g: {queue: a, members: 3, minimum: 0, each: {fraction: 0.5}, runs_on: [n1]}}\n"
    )
    source = Source(place=str(place))
    shown = queue_view(source, source.decide(), "", None, flat=False).text(Console(columns=80)).splitlines()
    assert shown[-4:] == ["", "QUEUE  MODEL  LIMIT  USED", "a      h100       2   1.5", "a      l4         -     0"]


def test_quotas_of_models_have_columns_beside_what_is_owed(tmp_path):
    place = tmp_path / "models.yaml"
    place.write_text(
        "about: x\n"
        "cluster: {nodes: {n1: {gpu: 4, model: h100}}}\n"
        "queues: {root: {}, a: {parent: root, quota: 4, models: {h100: {quota: 3, limit: 4}}}, b: {parent: root}}\n"
        "groups: {g: {queue: a, members: 2, minimum: 0, each: {gpu: 1}, runs_on: n1}}\n"
    )
    source = Source(place=str(place))
    shown = queue_view(source, source.decide(), "", None, flat=False).text(Console(columns=80)).splitlines()
    assert shown[-2:] == ["QUEUE  MODEL  QUOTA  OWED  LIMIT  USED", "a      h100       3     2      4     2"]


BUDGETS = """
cluster: {nodes: {n1: {gpu: 8}}}
queues:
  root: {quota: 8, budgets: {all: {amount: 9, spent: 12.5, enforce: warn}}}
  a: {parent: root, quota: 8, budgets: {own: {amount: 6, spent: 1}}}
  b: {parent: root, quota: 0}
groups:
  runs: {queue: a, each: {gpu: 2}, runs_on: n1, started: 0s, annotations: {kai.scheduler/max-runtime: 1h}}
  waits: {queue: a, each: {gpu: 4}, annotations: {kai.scheduler/max-runtime: 2h}}
run: [allocate]
"""
USED_UP = "Budget all of queue root is used up, with 12.5 of 9 GPU-hours: it only warns, so work goes on."


@pytest.fixture
def budgets(tmp_path):
    made = tmp_path / "case.yaml"
    made.write_text(BUDGETS, encoding="utf-8")
    return str(made)


def answered(capsys, *words):
    run(words)
    return capsys.readouterr().out


def test_documents_of_queues_have_their_budgets(budgets, capsys):
    document = json.loads(answered(capsys, "queues", "--from", budgets, "-o", "json"))
    items = {each["name"]: each.get("budgets") for each in document["items"]}
    assert items["b"] is None
    assert [(each["name"], each["spentHours"], each["usedUp"]) for each in items["root"]] == [("all", 12.5, True)]
    assert items["a"] == [
        {
            "name": "own",
            "enforce": "admit",
            "amountHours": 6.0,
            "spentHours": 1.0,
            "committedHours": 2.0,
            "leftHours": 3.0,
            "usedUp": False,
            "beginsAnew": "2026-02-01T00:00:00Z",
        }
    ]


def test_a_used_up_budget_that_warns_is_said(budgets, capsys):
    assert USED_UP in answered(capsys, "queues", "--from", budgets)
    text = " ".join(answered(capsys, "why", "queue/a", "--from", budgets).split())
    assert USED_UP in text
    assert (
        "Budget own of queue a has 3 of 6 GPU-hours left until Sun 1 Feb 00:00 (UTC), and 2 are held for running work."
        in text
    )
    document = json.loads(answered(capsys, "why", "queue/a", "--from", budgets, "-o", "json"))
    assert sorted(each["name"] for each in document["budgets"]) == ["all", "own"]
    assert "budgets" not in json.loads(answered(capsys, "why", "queue/lab", "--from", "examples/lab", "-o", "json"))
