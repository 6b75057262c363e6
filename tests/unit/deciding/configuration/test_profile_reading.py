import pytest

from kai.basics.errors import ConfigError
from kai.deciding.configuration.past_usage import UsageSettings
from kai.deciding.configuration.peer import DEFAULT_PLUGINS, PLUGINS, Arguments, PluginEntry, ours
from kai.deciding.configuration.profile_reading import default_configuration, merged, read_configuration
from kai.deciding.configuration.profiles import default_profile, make_profile
from kai.framework.hooks import OnFailure

OPERATOR_RENDERED = {
    "actions": "allocate, consolidation, reclaim, preempt, stalegangeviction",
    "tiers": [
        {
            "plugins": [
                {"name": "predicates"},
                {"name": "proportion", "arguments": {"kValue": "0.5", "relcaimerSaturationMultiplier": "1.5"}},
                {"name": "priority", "disableJobOrder": False},
                {
                    "name": "minruntime",
                    "arguments": {"defaultPreemptMinRuntime": "1h30m", "reclaimResolveMethod": "queue"},
                },
                {"name": "snapshot"},
                {"name": "gpuspread"},
                {"name": "nodeplacement", "arguments": {"cpu": "binpack", "gpu": "spread"}},
            ]
        }
    ],
    "queueDepthPerAction": {"allocate": 5},
    "usageDBConfig": {"clientType": "prometheus", "connectionString": "http://prometheus:9090"},
    "scenarioSearchBudgets": {"maxJobSearchDuration": "1m", "maxActionSearchDuration": {"default": "2m"}},
}


def options_of(configuration, name):
    (entry,) = [entry for entry in configuration.plugins if entry.name == name]
    return entry.options


def test_nothing_is_the_peers_built_in_configuration():
    built_in = default_configuration()
    assert built_in.actions == ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
    assert [name for name in DEFAULT_PLUGINS if not PLUGINS[name](Arguments(name, {}))] == ["snapshot"]
    assert options_of(built_in, "binpack") == {"cpu": True, "gpu": True}
    assert not {"spread", "numa", "pod_affinity_score", "gpu_spread"} & {entry.name for entry in built_in.plugins}
    assert read_configuration({}, "empty.yaml").plugins == built_in.plugins


def test_the_built_in_profile_loads():
    profile = default_profile()
    assert [action.name for action in profile.actions] == list(default_configuration().actions)
    assert profile.parameters.max_consolidation_preemptees == 16


def test_every_plugin_of_the_peer_stands_for_installed_ones():
    for name, translation in PLUGINS.items():
        configuration = read_configuration({"tiers": [{"plugins": [{"name": name}]}]}, "peer.yaml")
        assert len(make_profile(configuration).plugins) == len(translation(Arguments(name, {})))


def test_a_file_that_the_operator_rendered_loads_unchanged():
    read = read_configuration(OPERATOR_RENDERED, "peer.yaml")
    assert options_of(read, "proportion") == {"k": 0.5, "saturation_multiplier": 1.5}
    assert options_of(read, "min_runtime") == {
        "preempt_seconds": 5400.0,
        "reclaim_seconds": 0.0,
        "reclaim_resolve_method": "queue",
    }
    assert options_of(read, "binpack") == {"cpu": True, "gpu": False}
    assert options_of(read, "spread") == {"cpu": False, "gpu": True}
    assert read.parameters.queue_depth == {"allocate": 5}
    assert (read.parameters.budgets.group, read.parameters.budgets.action) == (60.0, {"default": 120.0})
    assert read.usage == UsageSettings(address="http://prometheus:9090")
    assert read.notes == ()
    make_profile(read)


def test_a_bad_argument_is_noted_and_its_default_used():
    tiers = [
        {
            "plugins": [
                {"name": "proportion", "arguments": {"kValue": "lots"}},
                {"name": "minruntime", "arguments": {"defaultReclaimMinRuntime": "soon", "reclaimResolveMethod": "up"}},
                {"name": "nodeplacement", "arguments": {"cpu": "scatter"}},
                {"name": "numa", "arguments": {"reconstructAvailable": "perhaps", "ignoreList": "a, b"}},
            ]
        }
    ]
    read = read_configuration({"tiers": tiers}, "peer.yaml")
    assert options_of(read, "proportion")["k"] == 1.0
    assert options_of(read, "min_runtime") == {
        "preempt_seconds": 0.0,
        "reclaim_seconds": 0.0,
        "reclaim_resolve_method": "lca",
    }
    assert options_of(read, "binpack") == {"cpu": True, "gpu": True}
    assert [note.partition(": ")[2].partition(":")[0] for note in read.notes] != []
    assert len(read.notes) == 5
    assert "kValue: found 'lots', expected a number; used 1.0" in read.notes[0]


def test_an_argument_about_kai_schedulers_memory_is_ignored():
    tiers = [{"plugins": [{"name": "dynamicresources", "arguments": {"maxCelCacheEntries": "100"}}]}]
    read = read_configuration({"tiers": tiers}, "peer.yaml")
    assert [entry.name for entry in read.plugins] == ["dra"]
    (note,) = (note for note in read.notes if "dynamicresources" in note)
    assert note.endswith("maxCelCacheEntries: is about memory of KAI-Scheduler; ignored")


@pytest.mark.parametrize(("text", "noted"), [("True", False), ("F", False), ("tRUE", True), ("yes", True)])
def test_a_boolean_argument_is_spelled_as_in_go(text, noted):
    tiers = [{"plugins": [{"name": "numa", "arguments": {"reconstructAvailable": text}}]}]
    read = read_configuration({"tiers": tiers}, "peer.yaml")
    assert any(f"found '{text}', expected true or false; used True" in note for note in read.notes) is noted


@pytest.mark.parametrize(("text", "k"), [("-1", 0.0), ("0", 0.0), ("2", 2.0), ("nan", 1.0), (" 2", 1.0), ("1e1", 10.0)])
def test_a_k_below_zero_is_zero(text, k):
    read = read_configuration(
        {"tiers": [{"plugins": [{"name": "proportion", "arguments": {"kValue": text}}]}]}, "peer.yaml"
    )
    assert options_of(read, "proportion")["k"] == k


def test_the_native_form_keeps_plugin_options_and_order():
    read = read_configuration(
        {
            "actions": ["allocate"],
            "plugins": {"spread": {"cpu": False}, "proportion": None},
            "parameters": {"queue_depth": {"allocate": 3}},
        },
        "policy.yaml",
    )
    assert read.actions == ("allocate",)
    assert read.plugins == (PluginEntry("spread", {"cpu": False}), PluginEntry("proportion", {}))
    assert read.parameters.queue_depth == {"allocate": 3}
    assert [use.name for use in make_profile(read).plugins] == ["spread", "proportion"]


def test_with_adds_plugins_and_sets_options_of_default_ones():
    read = read_configuration({"with": {"spread": {"cpu": False}, "proportion": {"k": 2.0}}}, "policy.yaml")
    default = default_configuration()
    assert [entry.name for entry in read.plugins] == [*(entry.name for entry in default.plugins), "spread"]
    assert options_of(read, "proportion") == {**options_of(default, "proportion"), "k": 2.0}
    assert (read.actions, read.notes) == (default.actions, ())


def test_false_switches_a_default_plugin_off():
    read = read_configuration({"with": {"gpu_pack": False, "gpu_spread": {}}}, "policy.yaml")
    default = [entry.name for entry in default_configuration().plugins if entry.name != "gpu_pack"]
    assert [entry.name for entry in read.plugins] == [*default, "gpu_spread"]
    assert read.notes == ()


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("taints", "pods may be placed where node selectors, taints or volumes forbid it"),
        ("pod_topology_spread", "pods that demand to be spread may be in one place"),
    ],
)
def test_false_says_what_is_lost(name, lost):
    read = read_configuration({"with": {name: False}}, "policy.yaml")
    assert read.notes == (f"policy.yaml: with: {name} off: {lost}",)


def test_two_plugins_that_say_the_opposite_are_noted():
    read = read_configuration({"with": {"gpu_spread": {}}}, "policy.yaml")
    told = "gpu_pack and gpu_spread are both on and cancel each other out"
    assert read.notes == (f"policy.yaml: {told}; gpu_pack: false under with: switches the first off",)


@pytest.mark.parametrize("document", [{"actions": []}, {"actions": ["reclaim"]}, {"actions": "preempt, reclaim"}])
def test_a_configuration_by_which_no_job_starts_says_so(document):
    read = read_configuration(document, "policy.yaml")
    assert read.notes == ("policy.yaml: actions: allocate off: no job starts on what is idle",)


def test_each_plugin_may_set_its_action_on_failure():
    read = read_configuration({"with": {"binpack": {"cpu": False, "on_failure": "leave-out"}}}, "policy.yaml")
    uses = {use.name: use for use in make_profile(read).plugins}
    assert uses["binpack"].on_failure is OnFailure.LEAVE_OUT
    assert uses["binpack"].plugin.cpu is False
    assert uses["proportion"].on_failure is None


def test_an_unknown_action_on_failure_is_refused():
    read = read_configuration({"with": {"binpack": {"on_failure": "leave_out"}}}, "policy.yaml")
    with pytest.raises(
        ConfigError, match=r"binpack\.on_failure: found 'leave_out', expected one of stop, refuse, leave"
    ) as e:
        make_profile(read)
    assert "leave-out" in e.value.help


def test_with_adds_to_a_list_as_well():
    read = read_configuration({"plugins": {"priority": None}, "with": {"spread": None}}, "policy.yaml")
    assert [entry.name for entry in read.plugins] == ["priority", "spread"]


@pytest.mark.parametrize("document", [None, {}, {"plugins": {}}, {"plugins": None}, {"with": {}}, {"with": None}])
def test_who_names_no_plugin_has_the_default_ones(document):
    read = read_configuration(document, "policy.yaml")
    assert (read.plugins, read.notes) == (default_configuration().plugins, ())


def test_a_list_that_leaves_out_what_protects_says_so():
    read = read_configuration({"plugins": {"priority": None, "taints": None}}, "policy.yaml")
    filters, spreading, shares, gangs = read.notes
    assert filters.startswith("policy.yaml: plugins: affinity, ")
    assert "taints" not in filters.partition(" off: ")[0]
    assert "pods may be placed where node selectors, taints or volumes forbid it" in filters
    assert "pod_topology_spread off: pods that demand to be spread may be in one place" in spreading
    assert "proportion off: queues have no fair share, quotas or limits" in shares
    assert "gang off: gangs that need several nodes take nothing back" in gangs
    assert all(note.endswith("with: adds to the default plugins") for note in read.notes)


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        ([], "expected a mapping with actions and plugins", ""),
        ({"actions": "allocte"}, "found 'allocte', expected the name of an installed action", "did you mean allocate?"),
        (
            {"actions": ["allocte"]},
            "found 'allocte', expected the name of an installed action",
            "did you mean allocate?",
        ),
        (
            {"cluster": {}, "queues": {}, "groups": {}},
            "found a scenario, expected a configuration: actions, plugins, with, parameters",
            "",
        ),
        ({"apiVersion": "v1", "kind": "Node"}, "found a Kubernetes object of kind Node, expected a configuration", ""),
        ({"plugins": {"binpak": {}}}, "plugins.binpak: found 'binpak'", "did you mean binpack?"),
        ({"plugins": {"nodeplacement": {}}}, "found KAI-Scheduler's name of a plugin", "did you mean binpack?"),
        ({"plugins": {"binpack": {"gpus": True}}}, "plugins.binpack.gpus is not an option of", "did you mean gpu"),
        ({"plugins": {"binpack": []}}, "expected a mapping from option names to values", ""),
        ({"plugins": []}, "expected a mapping from plugin names to their options", ""),
        ({"plugins": {}, "tiers": []}, "found tiers beside keys of kai's own form", ""),
        ({"plugins": {}, "parameter": {}}, "found key 'parameter'", "did you mean parameters?"),
        (
            {"parameters": {"scheduler_nam": "x"}},
            "parameters.scheduler_nam is not an option",
            "did you mean scheduler_name",
        ),
        ({"parameters": {"max_consolidation_preemptees": -2}}, "expected whole number, -1 or more", ""),
        ({"tires": []}, "found key 'tires', expected one of with, plugins, actions, parameters", "did you mean tiers?"),
        ({"tiers": [{True: 1}]}, "tiers[0]: found key true, expected one of plugins", ""),
        ({"tiers": [], "tires": []}, "found key 'tires', expected one of actions, tiers", "did you mean tiers?"),
        ({"tiers": {"plugins": []}}, "tiers: found {plugins: []}, expected a list", ""),
        ({"tiers": [{"plugin": []}]}, "tiers[0]: found key 'plugin'", "did you mean plugins?"),
        ({"tiers": [5]}, "tiers[0]: found 5", ""),
        ({"tiers": [{"plugins": [{}]}]}, "expected a mapping with the name of a plugin", ""),
        (
            {"tiers": [{"plugins": [{"name": "proporton"}]}]},
            "found 'proporton', expected the name of a plugin",
            "did you mean proportion?",
        ),
        (
            {"tiers": [{"plugins": [{"name": "proportion", "arguments": {"kvalue": "1"}}]}]},
            "arguments: found 'kvalue', expected an argument of proportion",
            "did you mean kValue?",
        ),
        (
            {"tiers": [{"plugins": [{"name": "priority", "arguments": {"x": "1"}}]}]},
            "arguments: found 'x', expected an argument of priority",
            "it has none",
        ),
        ({"tiers": [{"plugins": [{"name": "priority", "enabled": True}]}]}, "found key 'enabled'", ""),
        ({"actions": 5}, "expected names separated by commas", ""),
        (
            {"with": {"gpu_pak": False}},
            "with.gpu_pak: found false, expected the name of a plugin that is on, or options",
            "did you mean gpu_pack",
        ),
        ({"with": {"binpak": {}}}, "policy.yaml: with.binpak: found 'binpak'", "did you mean binpack?"),
        (
            {"with": {"binpack": {"gpus": True}}},
            "policy.yaml: with.binpack.gpus is not an option of",
            "did you mean gpu",
        ),
        ({"with": {"binpack": {"gpu": "on"}}}, "policy.yaml: with.binpack.gpu: found 'on', expected true", ""),
        ({"with": {"binpack": {"on_failure": "x"}}}, "policy.yaml: with.binpack.on_failure: found 'x'", "known are"),
        (
            {"plugins": {"binpack": {"cpu": "a"}}, "with": {"binpack": {"gpu": "b"}}},
            (
                "policy.yaml: plugins.binpack.cpu: found 'a', expected true or false or number, 0 or more, default 1\n"
                "policy.yaml: with.binpack.gpu: found 'b'"
            ),
            "",
        ),
        (
            {"plugins": {"binpack": {}}, "with": {"binpack": {"gpu": True}, "spread": {"cpus": 1}}},
            "policy.yaml: with.spread.cpus is not an option of",
            "did you mean cpu",
        ),
        ({"with": {"gpu_pack": "off"}}, "found 'off', expected a mapping from option names to values, or false", ""),
        ({"with": {"numa": False}}, "with.numa: found false, expected the name of a plugin that is on", ""),
        ({"plugins": {"taints": False}}, "plugins.taints: found false, expected a mapping from option names", ""),
        ({"queueDepthPerAction": {"allocate": -1}}, "queueDepthPerAction.allocate: found -1", ""),
        ({"queueDepthPerAction": []}, "expected a mapping from action names to numbers", ""),
        ({"scenarioSearchBudgets": {"maxJobSearchDuration": "long"}}, 'expected a duration such as "90s"', ""),
        (
            {"scenarioSearchBudgets": {"maxJobSearchDuratio": "1s"}},
            "found key 'maxJobSearchDuratio'",
            "did you mean maxJobSearchDuration",
        ),
        ({"scenarioSearchBudgets": {True: "1s"}}, "scenarioSearchBudgets: found key true, expected one of", ""),
        ({"scenarioSearchBudgets": []}, "expected a mapping of durations", ""),
        ({"scenarioSearchBudgets": {"maxActionSearchDuration": "1s"}}, "expected a mapping of durations", ""),
    ],
)
def test_an_unusable_configuration_is_refused_by_name(document, message, hint):
    with pytest.raises(ConfigError) as caught:
        make_profile(read_configuration(document, "policy.yaml"))
    assert str(caught.value).startswith("policy.yaml")
    assert message in str(caught.value)
    assert getattr(caught.value, "help", "").startswith(hint)


def test_every_name_that_is_wrong_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        make_profile(read_configuration({"actions": ["x"], "plugins": {"y": {}, "z": {}}}, "policy.yaml"))
    assert len(caught.value.messages) == 3


def test_a_third_party_plugin_is_allowed_in_tiers(monkeypatch):
    # Any installed plugin can be named there, with its arguments as text.
    tiers = [
        {
            "plugins": [
                {"name": "min_runtime", "arguments": {"preempt_seconds": "90s"}},
                {"name": "binpack", "arguments": {"cpu": "false"}},
            ]
        }
    ]
    read = read_configuration({"tiers": tiers}, "peer.yaml")
    assert options_of(read, "min_runtime") == {"preempt_seconds": 90.0}
    assert options_of(read, "binpack") == {"cpu": False}


def test_a_plugin_that_is_named_twice_is_one_plugin():
    entries = [PluginEntry("binpack", {"cpu": True, "gpu": False}), PluginEntry("binpack", {"cpu": False, "gpu": True})]
    assert merged(entries) == (PluginEntry("binpack", {"cpu": True, "gpu": True}),)


def test_names_of_the_peer_lead_to_ours():
    assert (ours("nodeplacement"), ours("sg-multinodegang"), ours("snapshot"), ours("nothing")) == (
        "binpack",
        "gang",
        "",
        "",
    )


@pytest.mark.parametrize(
    ("document", "note"),
    [
        (
            {"queueDepthPerAction": {"alocate": 5}},
            "queueDepthPerAction: found 'alocate', expected one of allocate, con",
        ),
        (
            {"scenarioSearchBudgets": {"maxActionSearchDuration": {"allocate": "1s"}}},
            "maxActionSearchDuration: found 'allocate', expected one of default, reclaim, preempt, consolidation; ign",
        ),
        (
            {"tiers": [{"plugins": [{"name": "priority", "disableJobOrder": True}]}]},
            "plugins[0].disableJobOrder: found true, expected false: KAI-Scheduler and kai never ask it; ignored",
        ),
    ],
)
def test_what_kai_scheduler_ignores_is_ignored_with_a_note(document, note):
    (found,) = read_configuration(document, "peer.yaml").notes
    assert note in found


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"scenarioSearchBudgets": {"maxGeneratorSearchDuration": {"Greedy": "1s"}}},
            "maxGeneratorSearchDuration: found 'Greedy', expected one of MultiNodeGang, NodeLocalGreedy, ",
        ),
        (
            {"scenarioSearchBudgets": {"maxJobSearchDuration": "-5m"}},
            "maxJobSearchDuration: found '-5m', expected 0s or",
        ),
        (
            {"scenarioSearchBudgets": {"maxActionSearchDuration": {"default": "-1s"}}},
            "default: found '-1s', expected 0s",
        ),
        (
            {"scenarioSearchBudgets": {"maxActionSearchDuration": []}},
            "Duration: found \\[\\], expected a mapping of durat",
        ),
        (
            {"tiers": [{"plugins": [{"name": "priority", "disableAll": True}]}]},
            r"tiers\[0\].plugins\[0\]: found key 'disableAll', expected one of name, arguments, disableJobOrder",
        ),
    ],
)
def test_what_kai_scheduler_rejects_is_refused(document, message):
    with pytest.raises(ConfigError, match=message):
        read_configuration(document, "peer.yaml")


def test_a_shortcut_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"without: found 'trail', expected one of allocate, .*trial"):
        read_configuration({"parameters": {"without": ["trail"]}}, "ours.yaml")


def test_without_a_similar_name_all_names_are_listed_once():
    with pytest.raises(ConfigError) as caught:
        read_configuration({"zzz": 1}, "policy.yaml")
    assert "expected one of with, plugins, actions" in str(caught.value)
    assert caught.value.helps == ("",)
