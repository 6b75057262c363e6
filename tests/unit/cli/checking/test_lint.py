import json
from errno import EACCES

import pytest

from kai.cli.command import run

GOOD = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, annotations: {kai.scheduler/batch-min-member: "6"}}
spec:
  parallelism: 6
  template:
    spec:
      schedulerName: kai-scheduler
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]
      restartPolicy: Never
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(text, name="x.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return make


def test_success_is_one_quiet_line(write, capsys):
    assert run(["lint", write(GOOD)]) == 0
    assert capsys.readouterr().out == "ok: 1 job, 6 pods, 48 GPUs, gang of 6\n"


@pytest.mark.parametrize("flags", [("--select", "J"), ("--ignore", "T")])
def test_an_unreadable_file_is_reported_whatever_codes_are_selected(write, capsys, flags):
    assert run(["lint", write(GOOD), "missing.yaml", *flags]) == 4
    assert capsys.readouterr().out == "missing.yaml: T005 no such file or folder\n"


def test_a_mistake_exits_1_and_an_unreadable_file_4(write, capsys):
    assert run(["lint", write(GOOD.replace("parallelism: 6", "parallelism: 5"))]) == 1
    assert "J017" in capsys.readouterr().out
    assert run(["lint", write("a: [")]) == 4
    assert run(["lint", "missing.yaml"]) == 4
    assert capsys.readouterr().out.endswith("missing.yaml: T005 no such file or folder\n")


def test_an_empty_path_is_not_the_current_folder(capsys):
    assert run(["lint", ""]) == 4
    assert capsys.readouterr().out == '"": T005 an empty path names no file or folder\n'


def test_what_is_hidden_in_a_folder_is_no_manifest(write, tmp_path, capsys):
    write(GOOD, "good.yaml")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index.yaml").write_text("a: {")
    assert run(["lint", str(tmp_path)]) == 0


def test_a_folder_that_cannot_be_listed_is_named(write, tmp_path, capsys, monkeypatch):
    def refuse(path):
        raise PermissionError(EACCES, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    assert run(["lint", str(tmp_path)]) == 4
    assert f"{tmp_path}: T005 Permission denied" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--select", "--ignore"])
def test_a_code_that_does_not_exist_is_refused(write, capsys, flag):
    assert run(["lint", write(GOOD), flag, "F,Z9"]) == 2
    assert f"error: {flag}: no code begins with 'Z9'" in capsys.readouterr().err


def test_codes_are_selected_and_ignored(write, capsys):
    bad = write(GOOD.replace("parallelism: 6", "parallelism: 5").replace("image: i", "imag: i"))
    assert run(["lint", bad, "--select", "F"]) == 1
    assert "J017" not in capsys.readouterr().out
    assert run(["lint", bad, "--ignore", "J017,F002,J024"]) == 0


def test_findings_for_machines(write, capsys):
    bad = write(GOOD.replace("parallelism: 6", "parallelism: 5"))
    run(["lint", bad, "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "Findings"
    assert [(item["code"], item["line"], item["found"]) for item in document["items"]] == [("J017", 3, "6")]
    run(["lint", bad, "-o", "github"])
    assert capsys.readouterr().out.startswith("::error file=x.yaml,line=3,col=71,title=J017::a gang of 6 needs")


def test_a_code_is_explained(capsys):
    assert run(["lint", "--explain", "j011"]) == 0
    assert capsys.readouterr().out.startswith(
        "J011 (error, refusal): gpu-fraction must be more than 0 and less than 1\n"
    )
    assert run(["lint", "--explain", "Z1"]) == 2
    assert run(["lint"]) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plugins: {binpack: {wieght: 3}}\n", "x.yaml:1:21: C001 plugins.binpack.wieght"),
        ("with: {binpack: {wieght: 3}}\n", "x.yaml:1:18: C001 with.binpack.wieght is not an option"),
        ("actoins: [allocate]\n", "x.yaml:1:1: C001 "),
        ("plugins: {priority: {}}\n", "x.yaml:1:1: C002 warning: plugins: "),
        ("cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, priorty: 1}}\n", "x.yaml:3:24: S001 groups.j: "),
        (
            "cluster: {}\nqueues: {a: {parent: b}, b: {parent: a}}\n",
            "x.yaml:2:14: S001 queues.a.parent: queue a is its",
        ),
        (
            "cluster: {}\nqueues: {a: {quota: 8, limit: 4}}\n",
            "x.yaml:2:24: S001 queues.a.limit: its limit of gpu, 4, is below its quota, 8",
        ),
        ("cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: b}}\n", "x.yaml:3:14: S001 groups.j.queue: queue b does"),
        (
            "cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, members: 2, minimum: 3}}\n",
            "x.yaml:3:36: S001 groups.j.minimum: found 3, expected at most 2, the number of its pods",
        ),
        (
            "cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, subgroups: {s: {members: 1, minimum: 2}}}}\n",
            "x.yaml:3:52: S001 groups.j.subgroups.s.minimum: found 2, expected at most 1, the number of its pods",
        ),
        (
            "cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, minimum: 2, subgroups: {s: {members: 1}}}}\n",
            "x.yaml:3:24: S001 groups.j.minimum: found 2, expected at most 1, the number of its sub-groups",
        ),
        (
            (
                "cluster: {}\nqueues: {a: {}}\n"
                "groups: {j: {queue: a, subgroups: {s: {minimum_subgroups: 2}, t: {members: 1, parent: s}}}}\n"
            ),
            "x.yaml:3:40: S001 groups.j.subgroups.s.minimum_subgroups: found 2, expected at most 1, the number of its",
        ),
        (
            "cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, subgroups: {s: {members: 1, parent: t}}}}\n",
            "x.yaml:3:52: S001 groups.j.subgroups.s.parent: found t, expected the name of a sub-group",
        ),
        (
            "cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, subgroups: {s: {parent: t}, t: {parent: s}}}}\n",
            'x.yaml:3:24: S001 groups.j.subgroups: found "s" among its own parents, expected a tree',
        ),
        (
            "cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, subgroups: {s: {members: 1, minimum: two}}}}\n",
            "x.yaml:3:52: S001 groups.j.subgroups.s.minimum: found 'two', expected a whole number from 0 to",
        ),
        (
            (
                'now: "2026-01-01T00:00:00Z"\nactions: [allocate]\nobjects:\n'
                "- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}}\n"
                "- {apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g, namespace: m}, "
                "spec: {queue: q, minSubGroup: 2, subGroups: [{name: s}]}}\n"
            ),
            "x.yaml: S001 podgroup m/g: spec.minSubGroup: found 2, expected at most 1, the number of its sub-groups",
        ),
        (
            "cluster: {}\nqueues: {a: {}}\ngroups: {j: {queue: a, members: 2, minimum: 3}}\nexpect: {j: pending}\n",
            "ok: 1 scenario",
        ),
        ("cluster: {}\nqueues: {a: {}}\nrun: [allocat]\n", "x.yaml: S001 actions: found 'allocat', expected the name"),
        ("cluster: {}\nqueues: {a: {}}\nwith: {binpack: {wieght: 3}}\n", "x.yaml:3:18: S001 with.binpack.wieght"),
    ],
)
def test_configurations_and_scenarios_are_checked_too(write, capsys, text, said):
    run(["lint", write(text)])
    assert capsys.readouterr().out.startswith(said)


def test_each_mistake_of_a_configuration_has_its_own_help(write, capsys):
    assert run(["lint", write("plugins: {binpak: {}, gpu_pack: {weigt: 3}}\n")]) == 1
    found = [line.strip("^ |") for line in capsys.readouterr().out.splitlines() if "^" in line]
    assert found == ["did you mean binpack?", "it has no options"]
    write("cluster: {nodes: {n1: {gpu: 8}}}\n", "here.yaml")
    assert run(["replay", "here.yaml", "--policy", write("acions: []\nplugns: {}\n")]) == 4
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  help:")]
    assert told == ["  help: did you mean actions?", "  help: did you mean plugins?"]


def test_files_are_looked_at_together(write, capsys):
    names = [write(GOOD, "a.yaml"), write("apiVersion: v1\nkind: Node\nmetadata: {name: m}\n", "b.yaml")]
    assert run(["lint", *names]) == 0
    assert capsys.readouterr().out == "ok: 1 job, 6 pods, 48 GPUs, gang of 6, 1 node\n"


def test_a_duplicate_across_two_paths_names_both_places(write, capsys, tmp_path):
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: m}\n"
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "nodes.yaml").write_text(node)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert run(["lint", one, two]) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"{two}/nodes.yaml:3:18: T004 node m is defined twice: first at {one}/nodes.yaml:3\n")
    assert f"{one} and {two} are looked at together, as one cluster; two clusters" in told
    assert f"kai lint {one}, kai lint {two}\n" in told
    assert run(["lint", one]) == run(["lint", two]) == 0
    capsys.readouterr()
    (tmp_path / "one" / "more.yaml").write_text(node)
    assert run(["lint", one]) == 1
    assert "looked at together" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seems"),
    [(b"%PDF-1.7\n%\xe2\xe3\n", "a PDF document"), (b"PK\x03\x04\xff", "a zip file that is not whole")],
    ids=["pdf", "zip"],
)
def test_a_file_of_another_format_is_named_by_format(capsys, tmp_path, text, seems):
    path = tmp_path / "binary.zip"
    path.write_bytes(text)
    said = f"{path}: T001 found {seems}, expected YAML or JSON text, or a snapshot (zip)\n"
    assert run(["lint", str(path)]) == 4
    assert capsys.readouterr().out == said
    assert run(["jobs", "--from", str(path)]) == 4
    assert capsys.readouterr().err == said


def test_slices_are_counted_as_quotas_count_them(write, capsys):
    sliced = GOOD.replace("nvidia.com/gpu: 8", "nvidia.com/mig-2g.20gb: 1")
    assert sliced != GOOD
    assert run(["lint", write(sliced)]) == 0
    assert capsys.readouterr().out == "ok: 1 job, 6 pods, 12 GPUs, gang of 6\n"


@pytest.mark.parametrize("code", [[], ["J010"], ["J015"]])
def test_codes_are_explained_within_the_width_of_the_terminal(capsys, monkeypatch, code):
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["lint", "--explain", *code]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_explain_prints_one_code_or_all_also_as_json(capsys):
    assert run(["lint", "--explain"]) == 0
    assert "\nJ011  error    refusal  gpu-fraction must be more than 0 and less than 1\n" in capsys.readouterr().out
    assert run(["lint", "--explain", "j011", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], [each["code"] for each in document["items"]]) == ("CodeList", ["J011"])
    assert run(["lint", "--explain", "J999"]) == 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ("[{name: s, parent: t}, {name: t, parent: s}]", 'found "s" among its own parents, expected a tree'),
        ("[{name: s}, {name: s}]", 'found "s" twice, expected distinct names'),
        ("[{name: s, parent: t}]", 'found parent "t" of "s", expected the name of a sub-group'),
        (
            str([{"name": f"s{at}"} | ({"parent": f"s{at - 1}"} if at else {}) for at in range(17)]),
            "found sub-groups nested 17 deep, expected at most 16",
        ),
    ],
)
def test_sub_groups_that_are_no_tree_are_told(write, capsys, parts, said):
    text = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g}\nspec: {subGroups: %s}\n"
    assert run(["lint", write(text % parts)]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"x.yaml:4:8: J023 spec.subGroups: {said}"
    assert run(["lint", write(text % "[{name: s}, {name: t, parent: s, minMember: 1}]")]) == 0


GROUP = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g%s}\nspec:\n  subGroups:\n"
QUEUE = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: q}\nspec: {%s}\n"
TOPOLOGY = """\
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: t}
spec:
  levels:
  - {nodeLabel: rack, alias: rack}
"""
WHOLE = GOOD.replace("    spec:\n", '    metadata: {annotations: {gpu-fraction: "1"}}\n    spec:\n')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            GROUP % "" + "  - name: a\n  - {name: b, minSubGroup: 2}\n",
            [
                "6:11: the PodGroup: subgroup a: minMember is required",
                "7:12: the PodGroup: subgroup b: minMember is required",
                '7:28: the PodGroup: subgroup "b": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)',
            ],
        ),
        (GROUP % ", resourceVersion: '7'" + "  - name: a\n", []),
        (QUEUE % "displayName: x", ["4:1: the Queue: resources must be specified"]),
        (
            TOPOLOGY,
            ["5:3: the Topology: invalid topology aliases: an alias must not equal a nodeLabel; conflicting: [rack]"],
        ),
        (
            WHOLE.replace("limits: {nvidia.com/gpu: 8}", ""),
            ["7:44: the Pod: gpu-fraction annotation value must be a positive number smaller than 1.0"],
        ),
        (
            WHOLE.replace('gpu-fraction: "1"', 'mps: "true"'),
            ["7:35: the Pod: MPS is only supported with GPU fraction request"],
        ),
    ],
)
def test_what_webhooks_refuse_is_told(write, capsys, text, said):
    assert run(["lint", write(text)]) == int(bool(said))
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("x.yaml:")]
    assert [each.removeprefix("x.yaml:").replace("W001 an admission webhook refuses ", "") for each in found] == said


def test_a_lint_error_hides_the_same_webhook_refusal(write, capsys):
    text = GOOD.replace("    spec:\n", '    metadata: {annotations: {gpu-fraction: "1.5"}}\n    spec:\n')
    assert run(["lint", write(text)]) == 1
    assert "J011" in (said := capsys.readouterr().out)
    assert "W001" not in said


def test_a_number_beyond_floats_is_reported_by_lint(write, capsys):
    assert run(["lint", write(QUEUE % f"resources: {{gpu: {{quota: 1{'0' * 400}}}}}")]) == 1
    assert "F001 quota" in capsys.readouterr().out


CLASS = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: mine}\nvalue: 60\n---\n"


@pytest.mark.parametrize(
    ("label", "before", "said"),
    [
        ("trian", "", "is none that kai installs: it is ignored, and the job gets another one"),
        ("elsewhere", "", ""),
        ("elsewhere", CLASS, "does not exist: it is ignored, and the job gets another one"),
        ("mine", CLASS, ""),
        ("inference", CLASS, ""),
    ],
)
def test_an_unknown_priority_class_warns_where_classes_are_known(write, capsys, label, before, said):
    text = before + GOOD.replace("{name: train,", f"{{name: train, labels: {{priorityClassName: {label}}},")
    assert run(["lint", write(text)]) == 0
    found = [line for line in capsys.readouterr().out.splitlines() if "J029" in line]
    assert [line.partition(": J029 warning: priority class ")[2] for line in found] == (
        [f"{label} {said}"] if said else []
    )


@pytest.mark.parametrize("words", [["simulate", "two.yaml"], ["jobs", "-f", "two.yaml"]])
def test_what_kai_wrote_is_no_cluster(words, write, capsys):
    write("cluster: {nodes: {n: {gpu: 8}}}\nqueues: {q: {}}\ngroups: {g: {queue: q, each: {gpu: 1}}}\n", "two.yaml")
    assert run([*words, "-o", "json"]) == 0
    written = capsys.readouterr().out
    kind = json.loads(written)["kind"]
    write(written, "written.json")
    for command in (["lint", "written.json"], ["jobs", "-f", "written.json"], ["simulate", "written.json"]):
        assert run(command) in {1, 4}
        told = "".join(capsys.readouterr())
        assert f"written.json:1:16: T003 found a {kind} that kai wrote, expected objects of a cluster\n" in told
        assert "kai diff compares two results; kai snapshot saves a cluster" in told


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.yaml", "shapes: {h: {gpu: 8, cuont: 2}}\n", "c.yaml:1:22: K002 there is no key cuont\n"),
        ("c.yaml", "shapes: {h: {gpu: -1}}\n", "c.yaml:1:19: K001 gpu is -1\n"),
        ("c.yaml", "shapes: {h: {gpu: 8}}\n", "ok: 1 cluster file\n"),
        ("t.csv", "arrival_s,duration_s,pods,gpus_per_pod\nx,1,1,1\n", 't.csv:2:1: R001 arrival_s is "x"'),
        ("t.csv", "arrival_s,duration_s,pods,gpus_per_pod\n0,1,1,1\n", "ok: 1 trace\n"),
        ("t.csv", "submit_time,gpus,team\n2026-11-02T08:00:00,8,a\n", "t.csv:1:1: R002 "),
        ("t.txt", "metadata: {name: m}\n", "t.txt:1:1: T003 apiVersion and kind are missing\n"),
    ],
)
def test_cluster_files_and_traces_are_linted_by_their_format(write, capsys, name, text, said):
    assert run(["lint", write(text, name)]) == (0 if said.startswith("ok") else 1)
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "sacct.json",
            '{"jobs": [{"job_id": 1, "time": {"submission": 5}}, {}]}',
            "sacct.json: T001 found no job in 2 rows",
        ),
        (
            "jobs.csv",
            "submit_time,gpus\n5,8\n",
            "jobs.csv:1:1: R002 found columns submit_time, gpus, expected kai's own",
        ),
        ("sacct.txt", "JobID|Submit|ElapsedRaw|ReqTRES\n1|5|60|cpu=1\n", "ok: 1 trace"),
    ],
)
def test_slurm_accounting_and_custom_tables_are_linted_as_traces(write, capsys, name, text, said):
    run(["lint", write(text, name)])
    assert capsys.readouterr().out.startswith(said)
