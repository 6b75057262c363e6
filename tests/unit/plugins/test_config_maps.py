from kai.deciding.explain.messages import fit_message
from kai.plugins.node_filters import ConfigMaps
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of


def config_map(name, namespace="default"):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


def needing(name, *maps, **parts):
    volumes = [{"name": each, "configMap": {"name": each}} for each in maps]
    manifest = pod(name, volumes=volumes, **parts)
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in maps]
    manifest["spec"]["containers"][0]["volumeMounts"] = mounts
    return manifest


def test_missing_maps_are_named():
    stage = Stage.of(ConfigMaps(), snapshot_of(node("n1"), config_map("have"), needing("a-0", "have", "z", "b")))
    assert stage.refusal("a-0") == "Missing required configmaps: [b z]"


def test_a_map_in_another_namespace_does_not_help():
    elsewhere = config_map("have", "other")
    stage = Stage.of(ConfigMaps(), snapshot_of(node("n1"), elsewhere, needing("a-0", "have")))
    assert stage.refusal("a-0") == "Missing required configmaps: [have]"


def test_nobody_pays_where_nothing_is_missing():
    stage = Stage.of(ConfigMaps(), snapshot_of(node("n1"), config_map("have"), needing("a-0", "have"), pod("b-0")))
    assert stage.is_silent


def test_only_pods_that_miss_something_are_asked_about():
    stage = Stage.of(ConfigMaps(), snapshot_of(node("n1"), config_map("have"), needing("a-0", "lost"), pod("b-0")))
    assert (stage.is_concerned("a-0"), stage.is_concerned("b-0")) == (True, False)
    assert list(stage.session.policy.dynamic).count(True) == 1


def test_where_config_maps_were_not_listed_none_is_missing():
    assert Stage.of(ConfigMaps(), snapshot_of(node("n1"), needing("a-0", "lost"))).is_silent


def test_a_missing_config_map_leaves_its_pod_pending():
    played = play(
        ConfigMaps(), snapshot_of(node("n1"), config_map("have"), needing("a-0", "lost"), needing("b-0", "have"))
    )
    assert played.bound == {"b-0": "n1"}
    assert fit_message(played.session.records[0].reasons[0].facts) == (
        "Scheduling conditions were not met for pod default/a-0:\nConfigMap: Missing required configmaps: [lost].\n"
    )
