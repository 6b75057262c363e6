import pytest

from kai.cli.failures import finding_text
from kai.manifests import documents_of, open_text, read
from kai.manifests.codes import CODES
from kai.manifests.lint import lint

FREE = "cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}"
FREE_LINES = "    cpu: {quota: -1, limit: -1}\n    memory: {quota: -1, limit: -1}"
QUEUE = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: %s}\nspec:\n  %s\n"
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels: {kai.scheduler/queue: %s}
  annotations: {kai.scheduler/batch-min-member: "%s"}
spec:
  parallelism: 6
  template:
    spec:
      schedulerName: %s
      containers:
      - {name: main, image: i, resources: {limits: {%s: 8}}}
      restartPolicy: Never
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus: {allocatable: {nvidia.com/gpu: 8}}\n"


def job(queue="a", gang=6, scheduler="kai-scheduler", gpu="nvidia.com/gpu"):
    return JOB % (queue, gang, scheduler, gpu)


def queue(name, spec="displayName: x"):
    return QUEUE % (name, spec)


NODE_OF_H100 = """apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
"""


def budgeted(name, entry, parent=""):
    amount = "" if "amount" in entry else "amount: 5, "
    over = f"parentQueue: {parent}, " if parent else ""
    spec = f"{over}resources: {{{FREE}, gpu: {{quota: 0, limit: -1}}}}, budgets: [{{name: month, {amount}{entry}}}]"
    return queue(name).partition("spec:")[0] + f"spec: {{{spec}}}\n"


def scheduled(name, entry, start="0 22 * * *", parent=""):
    above = f"parentQueue: {parent}\n  " if parent else ""
    window = f'{{name: nights, start: "{start}", duration: 8h, {entry}}}'
    return queue(name, f"{above}resources: {{{FREE}, gpu: {{quota: 8, limit: -1}}}}\n  schedules: [{window}]")


HOOK = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {{name: {}}}\n"


def keeping(retention, client="sqlite"):
    """Return a scheduler that keeps its history of usage for a time."""
    usage = f"{{clientType: {client}, usageParams: {{extraParams: {{retention: {retention}}}}}}}"
    return (
        "apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nmetadata: {name: default}\n"
        f"spec: {{usageDBConfig: {usage}}}\n"
    )


def limiting_users(name, limit, parent=""):
    """Return a queue that may use eight GPUs, and lets each user hold some of them."""
    above = f"parentQueue: {parent}\n  " if parent else ""
    users = f"perUser: {{gpu: {{limit: {limit}}}}}"
    return queue(name, f"{above}resources: {{{FREE}, gpu: {{quota: 0, limit: 8}}, {users}}}")


def limiting_at_night(name, limit, window, parent=""):
    """Return a queue as `limiting_users` does, with a window that changes amounts."""
    night = f"{{name: night, start: 0 22 * * *, duration: 8h, resources: {{{window}}}}}"
    return limiting_users(name, limit, parent).rstrip() + f"\n  schedules: [{night}]\n"


def modelled(name, models, parent="", quota=0):
    above = f"parentQueue: {parent}\n  " if parent else ""
    return queue(name, f"{above}resources: {{{FREE}, gpu: {{quota: {quota}, limit: 8}}, models: {{{models}}}}}")


def node(labels):
    return f"apiVersion: v1\nkind: Node\nmetadata: {{name: n1, labels: {{{labels}}}}}\n"


def lint_texts(*texts):
    source, values = open_text("---\n".join(texts).encode(), "x.yaml")
    return lint(read(documents_of(source, values)))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ((job(), queue("a")), []),
        ((job(),), []),
        (
            (queue("a"), queue("b", "parentQueue: a"), job()),
            [
                "x.yaml:17:33: J002 queue a has children; only a leaf queue can run jobs",
                "   17 |   labels: {kai.scheduler/queue: a}",
                "      |                                 ^ leaf queues below it: b",
                "  help: kai.scheduler/queue: b",
            ],
        ),
        (
            (queue("a", "parentQueue: b"), queue("b", "parentQueue: a"), job()),
            [
                "x.yaml:5:16: Q002 queue a is its own ancestor: a -> b -> a",
                "    5 |   parentQueue: b",
                "      |                ^",
                "x.yaml:11:16: Q002 queue b is its own ancestor: b -> a -> b",
                "   11 |   parentQueue: a",
                "      |                ^",
                "x.yaml:17:33: J002 queue a has children; only a leaf queue can run jobs",
                "   17 |   labels: {kai.scheduler/queue: a}",
                "      |                                 ^ its parents form a circle, and no queue of it runs jobs",
            ],
        ),
        (
            (queue("language"), job("langage")),
            [
                "x.yaml:11:33: J001 queue langage does not exist",
                "   11 |   labels: {kai.scheduler/queue: langage}",
                "      |                                 ^^^^^^^ is it language?",
                "  help: kai.scheduler/queue: language",
            ],
        ),
        (
            (job(gang=7),),
            [
                "x.yaml:6:49: J017 a gang of 7 needs more than the 6 pods of job default/train",
                '    6 |   annotations: {kai.scheduler/batch-min-member: "7"}',
                "      |                                                 ^^^ at most 6",
            ],
        ),
        (
            (job(scheduler="default-scheduler"),),
            [
                "x.yaml:11:22: J003 warning: the pods ask for GPUs, and default-scheduler places them",
                "   11 |       schedulerName: default-scheduler",
                "      |                      ^^^^^^^^^^^^^^^^^ kai places pods that name it",
                "  help: schedulerName: kai-scheduler",
            ],
        ),
        (
            (job(gpu="amd.com/gpu"), NODE),
            [
                "x.yaml:13:53: J020 no node offers amd.com/gpu, and a node refuses a pod that asks for it",
                "   13 |       - {name: main, image: i, resources: {limits: {amd.com/gpu: 8}}}",
                "      |                                                     ^^^^^^^^^^^ nodes offer nvidia.com/gpu",
            ],
        ),
        (
            (
                queue(
                    "team-a",
                    "resources:\n    gpu:\n        quota: 8\n        limit: 4\n" + FREE_LINES,
                ),
            ),
            [
                "x.yaml:8:16: Q003 limit of gpu (4) is below quota (8) in queue team-a",
                "    7 |         quota: 8",
                "    8 |         limit: 4",
                "      |                ^ must be 8 or more, or -1 for no limit",
                "  help: limit: -1",
            ],
        ),
        (
            (queue("team-a", "resources:\n    cpu:\n        quota: 2000000\n        limit: 1000000"),),
            [
                "x.yaml:8:16: Q003 limit of cpu (1000000) is below quota (2000000) in queue team-a",
                "    7 |         quota: 2000000",
                "    8 |         limit: 1000000",
                "      |                ^^^^^^^ must be 2000000 or more, or -1 for no limit",
                "  help: limit: -1",
            ],
        ),
    ],
)
def test_objects_are_looked_at_together(texts, said):
    assert "\n".join(finding_text(each) for each in lint_texts(*texts)).split("\n") == (said or [""])


@pytest.mark.parametrize(
    ("texts", "codes"),
    [
        ((queue("a", "parentQueue: b"), queue("b", "parentQueue: a")), ["Q002", "Q002"]),
        ((queue("a", "parentQueue: elsewhere"),), ["Q006"]),
        ((queue("a").replace("name: a", "name: a, deletionTimestamp: '2026-01-01T00:00:00Z'"),), ["Q007"]),
        ((queue("team"), queue("a", "parentQueue: taem")), ["Q001"]),
        ((queue("a", "resources: {gpu: {quota: 4}}"),), ["Q003"]),
        ((queue("a", "resources: {gpu: {quota: 4, limit: -1}}"),), ["Q008", "Q008"]),
        ((queue("a", "resources: {gpu: {quota: 4, limit: -1}, cpu: {limit: 0}, memory: {limit: -1}}"),), ["Q008"]),
        (
            (
                queue("a", "resources: {cpu: {quota: 1000, limit: -1}}"),
                queue("b", "parentQueue: a\n  resources: {cpu: {quota: 4000, limit: -1}}"),
            ),
            ["Q005"],
        ),
        (tuple(queue(f"q{at}", f"parentQueue: q{at - 1}" if at else "displayName: x") for at in range(33)), ["Q009"]),
        ((queue("a", f"resources: {{{FREE}, gpu: {{quota: 0, limit: -1, overQuotaWeight: -1}}}}"),), ["Q004"]),
        ((node("kai.scheduler/gpu-model: b200"), budgeted("a", "weights: [{model: b200, weight: 3}]")), []),
        ((budgeted("a", "period: hourly"),), ["Q030"]),
        ((budgeted("a", "period: weekly"),), []),
        ((budgeted("a", "amount: 10"), budgeted("b", "amount: 20", parent="a")), ["Q031"]),
        ((budgeted("a", "amount: 10"), budgeted("b", "amount: 20, period: daily", parent="a")), []),
        ((NODE_OF_H100, budgeted("a", "weights: [{model: h100, weight: 2}, {model: B200, weight: 3}]")), ["Q032"]),
        ((budgeted("a", "period: 0 0 1 1 *"),), ["Q033"]),
        ((budgeted("a", "period: 0 0 1 */3 *"),), ["Q033"]),
        ((budgeted("a", "period: 0 0 1 */2 *"),), []),
        ((budgeted("a", "period: 0 0 1 */2 *"), keeping("45d")), ["Q033"]),
        ((budgeted("a", "period: 0 0 1 1 *"), keeping("400d")), []),
        ((budgeted("a", "period: 0 0 1 1 *"), keeping("2y")), []),
        ((budgeted("a", "period: 0 0 1 1 *"), keeping("400d", client="prometheus")), ["Q033"]),
        ((scheduled("a", "timeZone: Berlin"),), ["Q010"]),
        ((scheduled("a", "timeZone: Europe/Berlin"),), []),
        ((scheduled("a", "timeZone: UTC", start="0 0 31 2 *"),), ["Q011"]),
        ((scheduled("a", "resources: {gpu: {quota: 40, limit: 30}}"),), ["Q012"]),
        ((scheduled("a", "resources: {gpu: {quota: 24}}"), scheduled("p", "notice: 1m", parent="a")), []),
        ((scheduled("p", "notice: 1m"), scheduled("a", "resources: {gpu: {quota: 24}}", parent="p")), ["Q012"]),
        ((scheduled("a", "onClose: evict"),), ["Q013"]),
        ((modelled("a", "H100: {limit: 1}"),), ["Q014"]),
        ((modelled("a", "h100: {limit: 9}"),), ["Q015"]),
        ((modelled("a", "h100: {limit: 2}"), modelled("b", "h100: {limit: 3}", parent="a")), ["Q015"]),
        ((modelled("a", "h100: {limit: 2}, a100: {}, l4: {limit: -1}"),), []),
        ((modelled("a", "h100: {quota: 1, limit: 0}", quota=1),), ["Q017"]),
        ((modelled("a", "h100: {quota: 4}, a100: {quota: 5}", quota=8),), ["Q018"]),
        ((modelled("a", "h100: {quota: 1}", quota=2), modelled("b", "h100: {quota: 2}", "a", quota=2)), ["Q019"]),
        ((modelled("a", "h100: {}", quota=2), modelled("b", "h100: {quota: 2}", "a", quota=2)), []),
        ((modelled("a", "h100: {limit: 2}"), node("nvidia.com/gpu.product: NVIDIA-H100-PCIe")), []),
        ((modelled("a", "h100: {limit: 2}"), node("kai.scheduler/gpu-model: h100-pcie")), ["Q016"]),
        ((modelled("a", "h100: {limit: 2}"), node("a: b")), []),
        ((limiting_users("a", 9),), ["Q024"]),
        ((limiting_users("a", 8),), []),
        ((limiting_users("a", 2), limiting_users("b", 3, parent="a")), ["Q024"]),
        ((limiting_users("a", 3), limiting_users("b", 2, parent="a")), []),
        ((limiting_at_night("a", 2, "perUser: {gpu: {limit: 9}}"),), ["Q024"]),
        ((limiting_at_night("a", 2, "gpu: {limit: 16}, perUser: {gpu: {limit: 9}}"),), []),
        ((limiting_at_night("a", 9, "gpu: {limit: 16}"),), []),
        ((limiting_at_night("a", 9, "gpu: {limit: 16}, perUser: {gpu: {limit: 12}}"),), ["Q024"]),
        ((limiting_at_night("a", 2, "perUser: {gpu: {limit: 4}}"), limiting_users("b", 3, parent="a")), []),
        (
            (limiting_users("a", 2), limiting_at_night("b", 1, "perUser: {gpu: {limit: 3}}", parent="a")),
            ["Q024"],
        ),
        ((limiting_users("a", 2), HOOK.format("kai-pod-mutation")), ["Q025"]),
        (
            (scheduled("a", "resources: {perUser: {gpu: {limit: 1}}}"), HOOK.format("kai-pod-mutation")),
            ["Q025"],
        ),
        ((limiting_users("a", 2), HOOK.format("kai-pod-mutation"), HOOK.format("kai-user-notes")), []),
        (
            (
                queue("a", f"resources: {{{FREE}, gpu: {{quota: 4, limit: -1}}}}"),
                queue("b", f"parentQueue: a\n  resources: {{{FREE}, gpu: {{quota: 5, limit: -1}}}}"),
            ),
            ["Q005"],
        ),
        (
            (("apiVersion: a.io/v1\nkind: T\nmetadata: {name: t}\nspec: {template: {spec: "
             "{schedulerName: kai-scheduler, containers: [{name: c}]}}}\n"),),
            ["J019"],
        ),
        (
            (
                ('apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w, annotations: {gpu-fraction: "0.5"}}\n'
                "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, "
                "spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}}}\n"),
            ),
            ["J021"],
        ),
    ],
)  # fmt: skip
def test_each_mistake_has_its_code(texts, codes):
    assert [finding.code for finding in lint_texts(*texts)] == codes


def test_an_unknown_node_is_reported_where_nodes_exist():
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  nodeName: ghost\n  schedulerName: kai-scheduler\n"
        "  containers: [{name: c, image: i}]\n"
    )
    (finding,) = lint_texts(pod, NODE)
    assert finding_text(finding).splitlines()[0] == (
        "x.yaml:5:13: J025 warning: nodeName: found ghost, which is not among the nodes of the input"
    )
    assert lint_texts(pod) == []
    assert lint_texts(pod.replace("ghost", "m"), NODE) == []


GROUP = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g}\nspec:\n  queue: a\n  %s\n"
MEMBER = """\
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {kai.scheduler/subgroup-name: x}, annotations: {pod-group-name: g}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
"""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("minMember: 3", ["x.yaml:6:14: J017 a gang of 3 needs more than the 1 pod of job default/g"]),
        (
            "minMember: 3\n  subGroups: [{name: x, minMember: 1}]",
            ["x.yaml:6:3: J027 warning: minMember of job default/g does not count beside its sub-groups"],
        ),
        (
            "subGroups: [{name: x, minMember: 2}, {name: z, minMember: 1}]",
            ["x.yaml:6:3: J017 a gang of 3 needs more than the 1 pod of job default/g"],
        ),
        ("minSubGroup: 1\n  subGroups: [{name: x, minMember: 1}, {name: z, minMember: 1}]", []),
        ("subGroups: [{name: x}, {name: z, parent: x}]", []),
    ],
)
def test_a_gang_counts_what_its_sub_groups_ask_for(spec, said):
    found = lint_texts(GROUP % spec, MEMBER)
    assert [finding_text(each).splitlines()[0] for each in found] == said


def test_every_code_says_what_it_means():
    assert all(
        code.title and code.text.endswith(".") and code.severity in {"error", "warning"} for code in CODES.values()
    )


@pytest.mark.parametrize(
    ("written", "better"),
    [("yes", 'name: "yes"'), ("1e3", 'name: "1e3"'), ("0x10", 'name: "0x10"')],
)
def test_a_value_needing_quotes_is_shown_quoted(written, better):
    found = lint_texts(f"apiVersion: v1\nkind: Node\nmetadata: {{name: {written}}}\n")
    assert [each.help for each in found if each.code == "F001"] == [better]


@pytest.mark.parametrize("more", [(), (queue("b"),)])
def test_an_empty_queue_name_is_reported_as_empty(more):
    (found,) = lint_texts(job("''"), *more)
    assert finding_text(found).splitlines()[0] == (
        "x.yaml:5:33: J001 kai.scheduler/queue is empty, expected the name of a queue"
    )
    (found,) = lint_texts((GROUP % "minMember: 1").replace("queue: a", "queue: ''"), MEMBER, *more)
    assert found.message == "queue is empty, expected the name of a queue"


def test_a_group_without_queue_is_reported_where_queues_exist():
    group = (GROUP % "minMember: 1").replace("  queue: a\n", "")
    assert lint_texts(group, MEMBER) == []
    (found,) = lint_texts(group, MEMBER, queue("b"))
    assert (found.code, found.message) == ("J001", "no queue is named")


def test_a_list_whose_items_are_none_is_told_so():
    (found,) = lint_texts("apiVersion: v1\nkind: List\nitems: {apiVersion: v1, kind: Pod}\n")
    assert str(found) == "x.yaml:3:1: T003 items: found an object, expected a list"


@pytest.mark.parametrize(("scheduler", "codes"), [("kai-scheduler", ["J043"]), ("default-scheduler", [])])
def test_an_ignored_kubernetes_pod_group_is_reported(scheduler, codes):
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: g-0}\nspec:\n"
        f"  schedulerName: {scheduler}\n  schedulingGroup: {{podGroupName: g}}\n  containers: [{{name: m, image: i}}]\n"
    )
    found = [each for each in lint_texts(text) if each.code == "J043"]
    assert [(each.code, each.line) for each in found] == [(code, 6) for code in codes]
