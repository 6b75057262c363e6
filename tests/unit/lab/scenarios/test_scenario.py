import pytest

from kai.answers.cases.case import Case, FairShareCase, intake_settings
from kai.basics.errors import ConfigError, InputError
from kai.deciding.configuration.peer import Settings
from kai.lab.scenarios.scenario import is_scenario, read_scenario

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}


def scenario(**changes):
    return {"name": "s", "now": "2026-01-01T12:00:00Z", "objects": [NODE], "actions": ["allocate"], **changes}


def read(**changes):
    case = read_scenario(scenario(**changes), "s.yaml")
    assert isinstance(case, Case)
    return case


def test_a_scenario_says_when_what_and_how_often():
    case = read(cycles=3, stableCycles=2, description="Three times", keepTerminating=["g"])
    assert (case.now, case.cycles, case.stable_cycles) == (1767268800.0, 3, 2)
    assert (case.title, case.keep_terminating) == ("Three times", {"g"})
    assert case.configuration.actions == ("allocate",)
    assert [node.metadata.name for node in case.objects.nodes] == ["n1"]


def test_without_a_configuration_the_default_holds():
    names = [entry.name for entry in read().configuration.plugins]
    assert {"proportion", "binpack", "gang", "dra"} <= set(names)


def test_tiers_replace_default_plugins_and_more_can_be_added():
    config = {"tiers": [{"plugins": [{"name": "gpuspread"}]}], "addPlugins": [{"name": "numa"}]}
    assert [entry.name for entry in read(config=config).configuration.plugins] == ["gpu_spread", "numa"]


def test_parameters_are_those_of_the_peer():
    params = {"maxConsolidationPreemptees": -1, "defaultStalenessGracePeriod": "1m", "fullHierarchyFairness": False}
    case = read(config={"params": params})
    assert case.configuration.parameters.max_consolidation_preemptees == -1
    assert case.configuration.parameters.default_staleness_grace_seconds == 60.0
    assert not case.settings.full_hierarchy_fairness


def test_a_node_pool_can_be_chosen():
    case = read(
        config={"params": {"nodePoolLabelKey": "pool", "nodePoolLabelValue": "a", "stuckInReleasingThreshold": "5m"}}
    )
    assert (case.settings.node_pool_label, case.settings.node_pool) == ("pool", "a")
    assert case.settings.stuck_in_releasing_seconds == 300.0


def test_snapshot_settings_are_read_by_their_own_names():
    values = {
        "partitionParams": {"NodePoolLabelKey": "pool", "NodePoolLabelValue": "b"},
        "restrictSchedulingNodes": True,
    }
    settings = intake_settings(Settings(values, "s.zip", zeroed=True))
    assert (settings.node_pool_label, settings.node_pool, settings.restrict_node_scheduling) == ("pool", "b", True)
    assert not settings.full_hierarchy_fairness
    assert settings.stuck_in_releasing_seconds == 0.0


def test_kinds_that_are_not_known_are_noted():
    case = read(objects=[NODE, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}}])
    assert case.notes == ("passed over 1 of kind Service",)


def test_a_division_is_a_case_of_its_own():
    case = read_scenario({"kind": "fairshare", "name": "d", "queues": []}, "d.yaml")
    assert isinstance(case, FairShareCase)


def test_manifests_are_no_scenarios():
    assert not is_scenario(NODE)
    assert not is_scenario([NODE])
    assert is_scenario(scenario())
    assert is_scenario({"kind": "admission"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "admission"}, "kind: found 'admission', expected a scheduling or a fairshare case"),
        ({"now": None}, "now: found nothing, expected a time such as"),
        ({"now": "noon"}, "now: found 'noon'"),
        ({"cycles": -1}, "cycles: found -1, expected a whole number from 0"),
        ({"cycles": "2"}, "cycles: found '2'"),
        ({"cycles": 10**9}, "cycles: found 1000000000"),
        ({"objects": {}}, "objects: found a value of type dict, expected a list of Kubernetes objects"),
        ({"objects": None}, "objects: found nothing, expected a list"),
        ({"objects": [5]}, "expected a list of Kubernetes objects"),
        ({"objects": [{**NODE, "status": 5}]}, "node n1: status: found 5"),
        ({"objects": [NODE, NODE]}, "node n1: metadata.name: found 'a second one'"),
        ({"actions": "allocate"}, "actions: found 'allocate', expected a list of names"),
        ({"config": []}, "config: found [], expected a mapping"),
        ({"expected": []}, ""),
        ({"keepTerminating": "g"}, "keepTerminating: found 'g'"),
    ],
)
def test_what_cannot_be_read_is_named(changes, message):
    if not message:
        assert read(**changes).expected is None
        return
    with pytest.raises(InputError) as caught:
        read(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"cycle": 2}, "found key 'cycle'", "did you mean cycles?"),
        ({"config": {"param": {}}}, "config: found key 'param'", "did you mean params?"),
        (
            {"config": {"params": {"useSignatures": True}}},
            "found 'useSignatures', expected the name of a parameter",
            "",
        ),
        (
            {"config": {"params": {"fullHierarchyFairnes": True}}},
            "found 'fullHierarchyFairnes'",
            "did you mean fullHierarchyFairness?",
        ),
        (
            {"config": {"tiers": [{"plugins": [{"name": "predicate"}]}]}},
            "found 'predicate'",
            "did you mean predicates?",
        ),
        ({"config": {"params": {"fullHierarchyFairness": "no"}}}, "expected true or false", ""),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(changes, message, hint):
    with pytest.raises(ConfigError) as caught:
        read(**changes)
    assert message in str(caught.value)
    assert getattr(caught.value, "help", "").startswith(hint)


def test_the_short_form_takes_plugins_in_our_own_form():
    short = {
        "about": "x",
        "cluster": {"nodes": {"n1": {"gpu": 1}}},
        "plugins": {"proportion": {"k": 0.5}},
        "with": {"numa": {}},
        "parameters": {"max_consolidation_preemptees": 1},
        "run": ["allocate"],
        "cycles": 2,
        "now": "2026-02-01T00:00:00Z",
    }
    case = read_scenario(short, "s.yaml")
    assert [entry.name for entry in case.configuration.plugins] == ["proportion", "numa"]
    assert case.configuration.parameters.max_consolidation_preemptees == 1
    assert (case.cycles, case.now, case.sentences) == (2, 1769904000.0, None)
