"""A SchedulingShard means to kai what the peer's operator would make of it for its scheduler."""

import json

import attrs
import pytest

from kai.basics.errors import ConfigError
from kai.cli.command import run
from kai.cli.deciding.policy import load_policy
from kai.cli.running.configuring import load_setup
from kai.cli.running.flags import FLAGS, PARAMETER_OF, ROLES, SETTING_OF, TOGETHER, read_flags
from kai.cli.running.process import Process
from kai.cli.running.roles import configuration_of, scheduler_settings
from kai.cli.running.shards import render
from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.framework.parameters import Parameters, SearchBudgets
from kai.intake import IntakeSettings
from tests.unit.api.manifests import SHARD

# What the operator writes for a shard that says nothing, plugin by plugin, in its order.
FIRST = ["predicates", "proportion", "priority", "nodeavailability", "resourcetype", "podaffinity", "elastic"]
SECOND = ["kubeflow", "ray", "subgrouporder", "taskorder", "nominatednode", "dynamicresources", "minruntime"]
THIRD = ["topology", "snapshot", "sg-nodelocalgreedy", "sg-multinodegang", "gpupack", "nodeplacement"]
LAST = ["gpusharingorder"]
PLUGINS = [*FIRST, *SECOND, *THIRD, *LAST]
ACTIONS = "allocate, consolidation, reclaim, preempt, stalegangeviction"
BINPACK = {"cpu": "binpack", "gpu": "binpack"}


def shard(name="default", **spec):
    return {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name}, "spec": spec}


def config(**spec):
    return {"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}, "spec": spec}


def rendered(*documents):
    return render(documents, "s.yaml", FLAGS)


def operator(plugins=PLUGINS, actions=ACTIONS, arguments=(), **more):
    """Return a configuration as the operator writes it."""
    given = {"nodeplacement": BINPACK, **dict(arguments)}
    tier = [{"name": name, **({"arguments": given[name]} if given.get(name) else {})} for name in plugins]
    return {"actions": actions, "tiers": [{"plugins": tier}], **more}


def without(*names):
    return [name for name in PLUGINS if name not in names]


SPREAD = [*without("gpupack", "gpusharingorder")[:-1], "gpuspread", "nodeplacement"]
CASES = {
    "nothing": ({}, operator()),
    "both strategies said": ({"placementStrategy": BINPACK}, operator()),
    "GPUs spread": (
        {"placementStrategy": {"gpu": "spread"}},
        operator(
            SPREAD,
            "allocate, reclaim, preempt, stalegangeviction",
            {"nodeplacement": {"cpu": "binpack", "gpu": "spread"}},
        ),
    ),
    "CPUs spread": (
        {"placementStrategy": {"cpu": "spread"}},
        operator(
            actions="allocate, reclaim, preempt, stalegangeviction",
            arguments={"nodeplacement": {"cpu": "spread", "gpu": "binpack"}},
        ),
    ),
    "GPUs spread over nodes, devices packed": (
        {
            "placementStrategy": {"gpu": "spread"},
            "plugins": {"gpuspread": {"enabled": False}, "gpupack": {"enabled": True}},
        },
        operator(
            without("gpusharingorder"),
            "allocate, reclaim, preempt, stalegangeviction",
            {"nodeplacement": {"cpu": "binpack", "gpu": "spread"}},
        ),
    ),
    "consolidation with spread, since it is asked for": (
        {"placementStrategy": {"cpu": "spread"}, "actions": {"consolidation": {"enabled": True}}},
        operator(arguments={"nodeplacement": {"cpu": "spread", "gpu": "binpack"}}),
    ),
    "k": ({"kValue": 1.5}, operator(arguments={"proportion": {"kValue": "1.5"}})),
    "a whole k": ({"kValue": 20}, operator(arguments={"proportion": {"kValue": "20"}})),
    "given arguments in place of generated ones": (
        {"kValue": 1.5, "plugins": {"proportion": {"arguments": {"kValue": "3.0"}}}},
        operator(arguments={"proportion": {"kValue": "3.0"}}),
    ),
    "no arguments in place of generated ones": (
        {"kValue": 1.5, "plugins": {"proportion": {"arguments": {}}}},
        operator(),
    ),
    "arguments kept where others are changed": (
        {"kValue": 1.5, "plugins": {"proportion": {"priority": 1}}},
        operator([*without("proportion"), "proportion"], arguments={"proportion": {"kValue": "1.5"}}),
    ),
    "times to run undisturbed": (
        {"minRuntime": {"preemptMinRuntime": "1m30s", "reclaimMinRuntime": "0s"}},
        operator(
            arguments={"minruntime": {"defaultPreemptMinRuntime": "1m30s", "defaultReclaimMinRuntime": "0s"}},
        ),
    ),
    "a plugin off": ({"plugins": {"elastic": {"enabled": False}}}, operator(without("elastic"))),
    "a plugin more": (
        {"plugins": {"numa": {"arguments": {"ignoreList": "memory"}}}},
        operator([*PLUGINS, "numa"], arguments={"numa": {"ignoreList": "memory"}}),
    ),
    "a plugin more, in the middle, and one of equal priority by name": (
        {"plugins": {"numa": {"priority": 1000}}},
        operator([*PLUGINS[: PLUGINS.index("subgrouporder")], "numa", *PLUGINS[PLUGINS.index("subgrouporder") :]]),
    ),
    "actions in another order": (
        {"actions": {"preempt": {"priority": 900}, "reclaim": {"enabled": False}}},
        operator(actions="preempt, allocate, consolidation, stalegangeviction"),
    ),
    "depths": ({"queueDepthPerAction": {"preempt": 10}}, operator(queueDepthPerAction={"preempt": 10})),
    "budgets": (
        {
            "scenarioSearchBudgets": {
                "maxActionSearchDuration": {"default": "5m", "reclaim": "3s"},
                "maxJobSearchDuration": "500ms",
                "minJobSearchDuration": "50ms",
                "maxGeneratorSearchDuration": {"MultiNodeGang": "2m", "NodeLocalGreedy": "75ms", "default": "2m"},
            }
        },
        operator(
            scenarioSearchBudgets={
                "maxActionSearchDuration": {"default": "5m", "reclaim": "3s"},
                "maxJobSearchDuration": "500ms",
                "minJobSearchDuration": "50ms",
                "maxGeneratorSearchDuration": {"MultiNodeGang": "2m", "NodeLocalGreedy": "75ms", "default": "2m"},
            },
        ),
    ),
    "past usage": (
        {"usageDBConfig": {"clientType": "prometheus", "connectionString": "http://p:9090"}},
        operator(usageDBConfig={"clientType": "prometheus", "connectionString": "http://p:9090"}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_shard_comes_to_what_the_operator_writes(name):
    spec, expected = CASES[name]
    found = rendered(shard(**spec))
    assert found.notes == ()
    assert found.document["actions"] == expected["actions"]
    assert found.document["tiers"] == expected["tiers"]
    ours, theirs = (read_configuration(each, "same place") for each in (found.document, expected))
    assert ours == theirs
    assert make_profile(ours) == make_profile(theirs)


def test_a_shard_without_budgets_gets_the_defaults():
    found = rendered(shard(scenarioSearchBudgets={"maxActionSearchDuration": {"reclaim": "3s"}}))
    budgets = read_configuration(found.document, "same place").parameters.budgets
    assert budgets == attrs.evolve(SearchBudgets(), action={**SearchBudgets().action, "reclaim": 3.0})


def test_flags_come_from_the_shard_and_its_config():
    found = rendered(
        shard(partitionLabelValue="pool-a", args={"max-consolidation-preemptees": "4", "queue-label-key": "mine"}),
        config(
            namespace="elsewhere",
            **{"global": {"schedulerName": "big", "nodePoolLabelKey": "pool", "queueLabelKey": "queue"}},
            binder={"resourceReservation": {"appLabel": "held", "namespace": "holding"}},
            queueController={"metricsNamespace": "metrics"},
            scheduler={"replicas": 2},
        ),
    )
    assert found.flags == {
        "partition-label-value": "pool-a",
        "max-consolidation-preemptees": "4",
        "queue-label-key": "mine",
        "namespace": "elsewhere",
        "scheduler-name": "big",
        "nodepool-label-key": "pool",
        "resource-reservation-app-label": "held",
        "resource-reservation-namespace": "holding",
        "metrics-namespace": "metrics",
        "leader-elect": "true",
    }
    assert rendered(shard(), config()).flags == {"partition-label-value": ""}
    assert rendered(shard(), config(**{"global": {"replicaCount": 3}})).flags["leader-elect"] == "true"


@pytest.mark.parametrize(
    ("prometheus", "address", "notes"),
    [
        ({"enabled": True}, "http://usage-prometheus.ns.svc.cluster.local:9090", 0),
        (
            {"enabled": True, "externalPrometheusUrl": "http://x"},
            "http://usage-prometheus.ns.svc.cluster.local:9090",
            0,
        ),
        ({"externalPrometheusUrl": "http://x"}, "http://x", 0),
        ({}, "http://usage-prometheus.ns.svc.cluster.local:9090", 1),
    ],
)
def test_the_address_of_past_usage_may_come_from_config(prometheus, address, notes):
    usage = {"clientType": "prometheus", "usageParams": {"windowSize": "1y"}}
    found = rendered(shard(usageDBConfig=usage), config(namespace="ns", prometheus=prometheus))
    assert found.document["usageDBConfig"] == {**usage, "connectionString": address}
    assert len(found.notes) == notes


def test_what_means_nothing_here_is_said():
    found = rendered(shard(kvalue=2, goMemLimit="1Gi", args={"gc": "400", "qps": "20"}))
    assert [note.partition(": spec.")[2].partition(":")[0] for note in found.notes] == [
        "kvalue",
        "goMemLimit",
        "args.gc",
    ]
    assert "kValue" in found.notes[0]
    assert found.flags["qps"] == "20"  # a flag that is accepted, and whose log line says what it does


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "s.yaml: found nothing, expected one SchedulingShard"),
        ([{"kind": "Config", "metadata": {"name": True}}], "s.yaml: found Config true, expected one SchedulingShard"),
        ([config()], "s.yaml: found Config kai-config, expected one SchedulingShard"),
        ([shard("a"), shard("b")], "s.yaml: found SchedulingShard a, SchedulingShard b, expected one"),
        ([shard(kValue="much")], "s.yaml: schedulingshard default: spec.kValue: found .much., expected a number"),
        ([shard(placementStrategy={"gpu": "pack"})], "spec.placementStrategy.gpu: found .pack., expected"),
        ([shard(queueDepthPerAction={"reclaims": 5})], "default: spec.queueDepthPerAction.reclaims: the scheduler's"),
        (
            [shard(queueDepthPerAction={"reclaim": 5}, actions={"reclaim": {"enabled": False}})],
            "actions are allocate, consolidation, preempt, stalegangeviction. reclaim isn't one of them",
        ),
        (
            [shard(scenarioSearchBudgets={"maxActionSearchDuration": {"allocate": "1s"}})],
            "Budgets.maxActionSearchDuration: found key 'allocate', expected one of default, reclaim",
        ),
        (
            [shard(scenarioSearchBudgets={"maxGeneratorSearchDuration": {"default": "-1s"}})],
            "maxGeneratorSearchDuration.default: found '-1s', expected 0s or more",
        ),
        (
            [shard(scenarioSearchBudgets={"maxJobSearchDuration": "1s", "minJobSearchDuration": "1s"})],
            "minJobSearchDuration: found '1s', expected less than maxJobSearchDuration",
        ),
    ],
)
def test_what_the_operator_would_refuse_is_refused(documents, message):
    with pytest.raises(ConfigError, match=message):
        rendered(*documents)


def test_no_search_bound_permits_any_least_time():
    budgets = {"maxJobSearchDuration": "0s", "minJobSearchDuration": "1s"}
    assert rendered(shard(scenarioSearchBudgets=budgets)).document["scenarioSearchBudgets"] == budgets


# --- As a file -----------------------------------------------------------------------------------------------------


def written(folder, *documents, name="shard.json"):
    path = folder / name
    listed = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    path.write_text(json.dumps(listed))
    return str(path)


def given(*flags):
    return read_flags(flags, FLAGS, ROLES, TOGETHER)


def test_the_service_takes_a_shard_for_its_configuration(tmp_path):
    path = written(
        tmp_path,
        shard(partitionLabelValue="pool-a", kValue=0.5, args={"schedule-period": "3s", "detailed-fit-errors": "true"}),
        config(**{"global": {"schedulerName": "big"}}, scheduler={"replicas": 2}),
    )
    for flag in ("--scheduler-conf", "--config"):
        process = Process.of(given("scheduler", f"{flag}={path}", "--schedule-period=2s"), {})
        settings = scheduler_settings(process.given)
        assert settings.configuration.parameters.scheduler_name == "big"
        assert settings.configuration.parameters.detailed_fit_errors
        assert settings.intake.node_pool == "pool-a"
        assert settings.lease_name == "big-pool-a"
        assert settings.leader_elect
        assert settings.period_seconds == 2.0  # what the command line says itself counts
        assert settings.document["tiers"][0]["plugins"][1] == {"name": "proportion", "arguments": {"kValue": "0.5"}}


def test_a_process_without_the_scheduler_reads_no_configuration():
    assert Process.of(given("podgrouper", "--queue-label-key=x"), {}).given.text("queue-label-key") == "x"


def test_an_unreadable_shard_flag_is_named_with_its_file(tmp_path):
    path = written(tmp_path, shard(args={"schedule-period": "often"}))
    with pytest.raises(ConfigError, match=r"shard.json: --schedule-period: found 'often', expected a duration"):
        Process.of(given("scheduler", f"--config={path}"), {})


def test_two_configurations_are_one_too_many():
    with pytest.raises(ConfigError, match="--config: found 'a' beside --scheduler-conf=b, expected one of them"):
        configuration_of(given("scheduler", "--config=a", "--scheduler-conf=b"))


def test_a_scheduler_file_is_read_unchanged(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("actions: allocate\n")
    setup = load_setup(str(path))
    assert setup.shard is None
    assert setup.configuration.actions == ("allocate",)
    assert Process.of(given("scheduler", f"--config={path}"), {}).given.named == {"config"}


def test_an_operators_config_map_is_read_as_configuration(tmp_path):
    path = tmp_path / "cm.yaml"
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": "actions: allocate\n"}}
    path.write_text(json.dumps(manifest))
    assert load_setup(str(path)).configuration.actions == ("allocate",)
    path.write_text(json.dumps({**manifest, "data": {"config.yaml": "action: allocate"}}))
    with pytest.raises(ConfigError, match=r"cm.yaml: found key 'action', expected one of with, plugins, actions"):
        load_setup(str(path))
    for broken, message in (
        ({"other": "x"}, "data: found other, expected config.yaml with a configuration"),
        (None, "data: found nothing, expected config.yaml with a configuration"),
        ({"config.yaml": 5}, "data.config.yaml: found 5, expected the text of a configuration"),
    ):
        path.write_text(json.dumps({**manifest, "data": broken}))
        with pytest.raises(ConfigError, match=f"cm.yaml: {message}"):
            load_setup(str(path))


def test_several_documents_that_are_no_manifests_are_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("actions: allocate\n---\nactions: reclaim\n")
    with pytest.raises(ConfigError, match=r"config.yaml: found 2 documents, expected one"):
        load_setup(str(path))


def test_an_api_servers_shard_is_read_despite_extra_fields(tmp_path):
    manifest = {**SHARD, "spec": {**SHARD["spec"], "usageDBConfig": {}}, "status": {"conditions": []}}
    setup = load_setup(written(tmp_path, manifest))
    assert setup.configuration.parameters.queue_depth == {"preempt": 10}


# --- In simulations ------------------------------------------------------------------------------------------------


def test_each_deciding_flag_maps_to_a_known_parameter():
    assert set(PARAMETER_OF.values()) <= {field.name for field in Parameters.__attrs_attrs__}
    assert set(SETTING_OF.values()) <= {field.name for field in IntakeSettings.__attrs_attrs__}
    assert set(PARAMETER_OF) | set(SETTING_OF) <= FLAGS.keys()


def test_a_simulation_takes_only_the_given_values_of_shards(tmp_path):
    path = written(tmp_path, shard(partitionLabelValue="p", args={"max-consolidation-preemptees": "16"}, kValue=2))
    policy = load_policy(path)
    assert policy.said == {"max_consolidation_preemptees"}
    assert policy.settings == {"node_pool": "p"}


CASE = """
now: 2026-01-01T00:00:00Z
config: {params: {schedulerName: other}}
objects:
- {apiVersion: v1, kind: Node, metadata: {name: m}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: top}, spec: {resources: RES}}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, spec: {parentQueue: top, resources: RES}}
- {apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g, namespace: d}, spec: {queue: q}}
- apiVersion: v1
  kind: Pod
  metadata: {name: p, namespace: d, uid: u, annotations: {pod-group-name: g}}
  spec: {schedulerName: other, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
""".replace("RES", "{cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}, gpu: {quota: -1, limit: -1}}")


def test_simulate_notes_what_it_ignores_of_a_shard(tmp_path, capsys):
    (tmp_path / "case.yaml").write_text(CASE)
    usage = {"clientType": "prometheus", "connectionString": "http://p:9090"}
    path = written(tmp_path, shard(usageDBConfig=usage, depth=5))
    assert run(["simulate", str(tmp_path / "case.yaml"), "--config", path, "-o", "json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert [job["nodes"] for job in document["jobs"]] == [["m"]]  # of the case's own scheduler
    assert [note.rpartition("shard.json: ")[2].partition(":")[0] for note in document["notes"]] == [
        "schedulingshard default",
        "usageDBConfig",
    ]
    assert printed.err.count("spec.depth: found an unknown key") == 1
