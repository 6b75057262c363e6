import json
from pathlib import Path

import pytest
import yaml

from kai.cli.command import run

GOOD = """
about: One starts, one waits.
cluster: {nodes: {n1: {gpu: 2}}}
queues: {root: {quota: 2}, a: {parent: root, quota: 2}}
groups:
  starts: {queue: a, each: {gpu: 1}}
  waits: {queue: a, each: {gpu: 2}}
run: [allocate]
expect: {starts: allocated on n1, waits: pending}
"""
FAIR = {
    "name": "fair",
    "kind": "fairshare",
    "divide": "resource",
    "totalResources": {"gpu": 4},
    "queues": [
        {
            "uid": "1",
            "priority": 0,
            "resources": {"gpu": {"deserved": 1, "limit": -1, "overQuotaWeight": 1, "request": 3}},
        }
    ],
    "expected": {"fairShare": {"1": {"gpu": 3}}, "remaining": {"gpu": 1}},
}


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return str(path)


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("quota: 2", "quotas: 2"))
    return str(path)


@pytest.fixture
def fair(tmp_path):
    path = tmp_path / "fair.yaml"
    path.write_text(json.dumps(FAIR))
    return str(path)


def out(capsys, *arguments, code=0):
    assert run(["simulate", *arguments]) == code
    return capsys.readouterr()


def test_the_table_says_who_starts_and_why_others_wait(capsys, good):
    text = out(capsys, good).out
    assert "One starts, one waits. · 1 node · 2 GPUs · 1 leaf queue · 2 jobs · 1 waiting · 1 cycle" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["starts", "a", "50", "1", "1/1", "Starts", "n1"] in rows
    (waits,) = [line for line in text.splitlines() if line.startswith("waits")]
    assert "0/1  Waits   -      NoRoom  no node that it may use has 2 GPUs idle; 1 idle in all" in waits
    assert "Plan: 1 pod starts now." in text


def test_json_is_one_object_a_line_for_each_case(capsys, good, fair):
    lines = out(capsys, good, fair, "-o", "json").out.splitlines()
    first, second = (json.loads(line) for line in lines)
    assert (first["apiVersion"], first["kind"], first["scenario"]) == ("output.kai/v1", "SimulationResult", good)
    starts = {"state": "Starts", "status": "Binding", "node": "n1", "gpuGroups": [], "numaZones": []}
    assert (first["pods"]["default/starts-0"], first["pods"]["default/waits-0"]["state"]) == (starts, "Waits")
    assert first["nodes"] == {"n1": {"idleGpus": 1, "releasingGpus": 0}}
    assert first["counts"] == [{"binds": 1, "evictions": 0, "pipelines": 0}]
    jobs = {job["name"]: job for job in first["jobs"]}
    assert jobs["waits"]["reason"]["code"] == "NoRoom"
    assert jobs["waits"]["message"].startswith("PodSchedulingErrors: Resources were not found for pod default/waits-0")
    assert jobs["starts"]["reason"] is None
    queues = {queue["name"]: queue for queue in first["queues"]}
    assert queues["a"]["gpus"] == {
        "quota": 2.0,
        "limit": None,
        "unlimited": True,
        "fairShare": 2.0,
        "used": 1.0,
        "usedNonPreemptible": 0.0,
        "requested": 3.0,
    }
    assert second["fairShare"] == {"1": {"gpu": 3.0}}


def test_yaml_says_the_same_as_json(capsys, good, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    as_json = json.loads(out(capsys, good, "-o", "json").out)
    assert list(yaml.safe_load_all(out(capsys, good, "-o", "yaml").out)) == [as_json]


def test_a_division_is_a_table(capsys, fair):
    rows = [line.split() for line in out(capsys, fair).out.splitlines()]
    assert rows[-3:] == [["QUEUE", "GPU"], ["1", "3"], ["left", "over", "1"]]


def test_one_gpu_is_counted_as_one(capsys, good, tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(GOOD.replace("gpu: 2", "gpu: 1", 1))
    assert "1 node · 1 GPU · 1 leaf queue" in out(capsys, str(path)).out


def test_a_check_leaves_with_one_where_something_differs(capsys, good, fair, tmp_path):
    assert out(capsys, good, fair, "--check").out.splitlines() == [f"ok    {good}", f"ok    {fair}"]
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(GOOD.replace("allocated on n1", "pending"))
    seen = out(capsys, good, str(wrong), "--check", code=1)
    assert seen.out.splitlines()[1:] == [f"FAIL  {wrong}", "      starts: 1 allocated on n1, expected pending"]
    assert seen.err.splitlines() == ["1 of 2 as expected"]
    verdict = json.loads(out(capsys, str(wrong), "--check", "-o", "json", code=1).out)["check"]
    assert verdict == {"ok": False, "differences": ["starts: 1 allocated on n1, expected pending"]}


def test_a_check_of_what_expects_nothing_is_refused(capsys, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(GOOD.replace("expect:", "idle: {}\n#"))
    told = f'error: {path} has no "expect" or "expected"; --check has nothing to compare'
    assert out(capsys, str(path), "--check", code=4).err.splitlines()[0] == told


def test_one_bad_case_lets_the_other_cases_run(capsys, good, bad):
    seen = out(capsys, bad, good, "-o", "json", code=4)
    first, second = (json.loads(line) for line in seen.out.splitlines())
    assert first == {
        "scenario": bad,
        "error": f"InputError: {bad}: queues.root: found key 'quotas'; did you mean quota?",
    }
    assert second["scenario"] == good
    assert seen.err.splitlines() == [f"error: {bad}: queues.root: found key 'quotas'; did you mean quota?"]


def test_a_bug_in_one_case_lets_other_cases_run(capsys, good, monkeypatch):
    def fail(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("kai.lab.request.answer", fail)
    seen = out(capsys, good, "-o", "json", code=5)
    assert json.loads(seen.out) == {"scenario": good, "error": "KeyError: 'lost'"}
    assert seen.err.startswith("error: this is a bug of kai: KeyError: 'lost'")


def test_actions_cycles_time_and_configuration_can_be_changed(capsys, good, tmp_path):
    policy = tmp_path / "p.yaml"
    policy.write_text("plugins: {proportion: }\n")
    changed = json.loads(
        out(capsys, good, "--actions", "stalegangeviction, reclaim", "--cycles", "3", "-o", "json").out
    )
    assert changed["counts"] == [{"binds": 0, "evictions": 0, "pipelines": 0}] * 3
    changed = json.loads(out(capsys, good, "--config", str(policy), "--now", "2026-05-01T00:00:00Z", "-o", "json").out)
    assert changed["pods"]["default/starts-0"]["status"] == "Binding"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ["--actions", "allocte"],
            4,
            "command line: actions: found 'allocte', expected the name of an installed action",
        ),
        (["--now", "noon"], 2, "command line: --now: found 'noon', expected a time such as"),
        (["--config", "/no/such/file"], 4, "/no/such/file: no such file\n"),
    ],
)
def test_what_cannot_be_used_is_told(capsys, good, arguments, code, error):
    assert out(capsys, good, *arguments, code=code).err.startswith(f"error: {error}")


def test_explain_adds_the_peers_words(capsys, good):
    text = out(capsys, good, "--explain", "-v").out
    assert "waits waits: no node that it may use has 2 GPUs idle; 1 idle in all." in text
    (wire,) = [line for line in text.splitlines() if line.startswith("  wire ")]
    assert wire.split(maxsplit=1)[1].startswith("PodSchedulingErrors: Resources were not found for pod default/waits-0")
    assert text.count("no nodes with enough resources were found") == 1


def test_wide_says_more_and_ascii_draws_plainly(capsys, good):
    text = out(capsys, good, "-o", "wide", "--ascii").out
    assert "PREEMPTIBLE" in text
    assert "default/starts" in text
    assert text.count("RUN/WAIT") == 3
    assert text.isascii()


def test_colour_is_only_used_where_it_is_wanted(capsys, good, monkeypatch):
    assert "\x1b[" not in out(capsys, good).out
    assert "\x1b[" in out(capsys, good, "--color", "always").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in out(capsys, good).out


def test_what_is_not_used_is_told(capsys, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: m}\n"
    )
    told = f"note: {path}: not used: 1 Service (scheduling does not read this kind)\n"
    assert out(capsys, str(path)).err == told
    assert out(capsys, str(path), "-q").err == ""


def test_workloads_of_which_no_job_comes_are_an_error(capsys, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "apiVersion: acme.io/v1\nkind: Training\nmetadata: {name: t}\n"
        "spec: {template: {spec: {schedulerName: kai-scheduler, containers: [{name: c}]}}}\n"
    )
    assert run(["simulate", str(path)]) == 4
    told = capsys.readouterr().err
    assert "not used: 1 Training of acme.io (kai does not expand" in told
    assert told.endswith(f"error: {path}: found workloads for this scheduler, and no job came of them\n")


def test_workloads_of_another_node_pool_are_told_of(capsys, tmp_path):
    path, shard = tmp_path / "x.yaml", tmp_path / "shard.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {kai.scheduler/node-pool: west}}\n"
        "spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}\n"
    )
    told = (
        "each pod group is in another node pool (west) than the one that is decided for "
        "(what has no label kai.scheduler/node-pool); "
        "a SchedulingShard says by its partitionLabelValue for which, see --config"
    )
    assert run(["simulate", str(path)]) == 4
    assert f"note: {path}: {told}\n" in capsys.readouterr().err
    shard.write_text(
        "apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nmetadata: {name: w}\nspec: {partitionLabelValue: west}\n"
    )
    assert run(["simulate", str(path), "--config", str(shard)]) == 0
    assert "node pool" not in capsys.readouterr().err


def test_memory_of_gpus_stands_in_the_column_of_gpus(tmp_path, capsys):
    path = tmp_path / "case.yaml"
    path.write_text(
        "cluster: {nodes: {n1: {gpu: 2}}}\n"
        "queues: {a: {quota: 2}}\n"
        "groups: {j: {queue: a, members: 2, each: {gpu_memory: 30000}}}\n"
    )
    assert run(["simulate", str(path)]) == 0
    assert " 60000Mi " in capsys.readouterr().out
    assert run(["jobs", "-f", str(path), "-o", "json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["items"]
    assert (job["gpus"], job["gpuMemoryBytes"]) == (0.0, 60000 * 2**20)


def test_queues_outside_the_tree_are_listed_below_the_others(tmp_path, capsys):
    path = tmp_path / "case.yaml"
    path.write_text(
        "cluster: {nodes: {n1: {gpu: 2}}}\n"
        "queues: {x: {quota: 2}, a: {parent: b}, b: {parent: a}}\n"
        "groups: {j: {queue: x, each: {gpu: 1}}}\n"
    )
    assert run(["simulate", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "queue a belongs to no tree: its parents form a circle, a -> b -> a (QueueCycle)" in lines


def test_the_plan_counts_the_pods_of_all_cycles(tmp_path, capsys):
    path = tmp_path / "case.yaml"
    path.write_text(
        "cluster: {nodes: {n1: {gpu: 2}}}\n"
        "queues: {root: {quota: 2}, a: {parent: root, quota: 2}, b: {parent: root, quota: 0}}\n"
        "groups:\n"
        "  old: {queue: b, members: 2, each: {gpu: 1}, runs_on: n1}\n"
        "  new: {queue: a, each: {gpu: 2}}\n"
    )
    assert run(["simulate", str(path)]) == 0
    assert "Plan: 1 pod starts after 2 evicted pods have stopped." in capsys.readouterr().out
    assert run(["simulate", str(path), "--cycles", "3"]) == 0
    assert "Plan: 1 pod starts now, 2 pods are evicted." in capsys.readouterr().out


def test_an_unreadable_queue_value_names_the_file(tmp_path, capsys):
    path = tmp_path / "case.yaml"
    path.write_text("cluster: {nodes: {n1: {gpu: 2}}}\nqueues: {a: {priority: high}}\ngroups: {}\n")
    assert run(["simulate", str(path)]) == 4
    assert capsys.readouterr().err.startswith(f"error: {path}: queue a: spec.priority: found ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--actions", "none"], "--actions: name them in a file for --policy"),
        (["--cycles", "1"], "--cycles: the time for which it passes is given with --until"),
        (["--now", "nonsense"], "--now: a start is given by arrivals that are dates"),
        (["--check"], "--check: only the decision of one moment is compared"),
        (["--explain"], "--explain: only the decision of one moment is explained"),
    ],
)
def test_a_flag_of_one_moment_excludes_virtual_time(capsys, good, arguments, said):
    lines = out(capsys, good, "--until", "1h", *arguments, code=2).err.splitlines()
    assert lines == [f"error: {arguments[0]} cannot be used with virtual time", f"  help: {said}"]


def test_a_scenario_over_virtual_time_is_called_so(capsys, good):
    said = out(capsys, good, "--until", "1h", code=4).err
    assert said == f"error: {good}: found a scenario, which is of one moment, expected manifests for virtual time\n"


def test_all_flags_that_exclude_virtual_time_are_named(capsys, good):
    first, second = out(capsys, good, "--until", "1h", "--check", "--now", "x", code=2).err.splitlines()
    assert first == "error: --now and --check cannot be used with virtual time"
    assert second.startswith("  help: --now: a start is given by arrivals that are dates; --check: ")


def test_a_configuration_is_the_one_policy_of_a_run(capsys, tmp_path):
    case, policy = Path(__file__).parents[2] / "lab" / "virtual" / "cases" / "reclaim.yaml", tmp_path / "quiet.yaml"
    policy.write_text("actions: allocate\n")
    first, second = (
        out(capsys, str(case), "--until", "1h", flag, str(policy)).out for flag in ("--config", "--policy")
    )
    assert "policy quiet" in first
    assert first == second


def test_a_configuration_beside_policies_is_refused_over_time(capsys, good):
    assert out(capsys, good, "--until", "1h", "--config", "a", "--policy", "b", code=2).err.splitlines() == [
        "error: --config and --policy cannot be used together",
        "  help: give each configuration with --policy",
    ]


@pytest.mark.parametrize("arguments", [["--seed", "0"], ["--skip-bad-rows"], ["--since", "0"], ["--on", "dask://h:1"]])
def test_a_flag_over_time_is_refused_without_virtual_time(capsys, good, arguments):
    lines = out(capsys, good, *arguments, code=2).err.splitlines()
    assert lines == [
        f"error: {arguments[0]} cannot be used without virtual time",
        "  help: give --until, --cluster or a trace",
    ]
