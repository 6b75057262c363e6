from types import SimpleNamespace

from kai.facts.model.pod import Constraints, ContainerRequest
from kai.facts.state.table_version import TableVersion
from kai.intake.surroundings import Surroundings
from tests.unit.intake.making import node, other, pod, queue, taken

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def near(**labels):
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": labels}}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def elsewhere(made):
    made["metadata"]["namespace"] = "elsewhere"
    return made


def config_map(name, namespace="default"):
    return other("ConfigMap", "v1", name, namespace=namespace)


def volume_claim(name, phase="Pending", size="1Gi"):
    spec = {"storageClassName": "fast", "resources": {"requests": {"storage": size}}}
    return other("PersistentVolumeClaim", "v1", name, namespace="default", spec=spec, status={"phase": phase})


def mounting(claim):
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def reading(*names, **more):
    volumes = [{"name": name, "configMap": {"name": name, **more}} for name in names]
    return {"volumes": volumes, "containers": [mounter(*names)]}


def mounter(*names, **more):
    return {"name": "main", "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in names], **more}


def shapes_of(*manifests):
    snapshot = taken(*manifests)
    return [snapshot.shapes[number] for number in snapshot.pod_shape]


def test_equal_requests_of_different_groups_share_one_shape():
    pods = [pod("a", group="x", labels={"app": "1"}), elsewhere(pod("b", group="y")), pod("c", node="n")]
    snapshot = taken(*pods, node("n"))
    assert len(snapshot.shapes) == 1
    assert (snapshot.shapes[0].namespace, snapshot.shapes[0].labels) == ("", ())


def test_shapes_come_in_order_of_first_use_by_row():
    pods = [pod("c", requests={"cpu": "1"}), pod("b", requests={"cpu": "2"}), pod("a", requests={"cpu": "1"})]
    snapshot = taken(*pods)
    assert [dict(shape.request)["cpu"] for shape in snapshot.shapes] == [1000, 2000]
    assert snapshot.pod_shape.tolist() == [0, 1, 0]


def test_terms_make_namespaces_and_selected_labels_part_of_shapes():
    one, two, three, four = shapes_of(
        pod("a", labels={"app": "x", "run": "1"}),
        pod("b", labels={"app": "x", "run": "2"}),
        pod("c", spec=near(app="x")),
        elsewhere(pod("d", labels={"app": "x"})),
    )
    assert one == two
    assert one.labels == (("app", "x"),)
    assert (three.labels, three.namespace) == ((), "default")
    assert (four.labels, four.namespace) == ((), "elsewhere")


def test_spreading_reads_selector_labels_and_match_label_keys():
    demand = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["run"]}
    selecting = demand | {"labelSelector": {"matchLabels": {"app": "x"}}}
    one, two, three, four = shapes_of(
        pod("a", labels={"app": "x", "run": "1", "else": "1"}),
        pod("b", labels={"app": "x", "run": "1", "else": "2"}),
        pod("c", labels={"run": "2"}, spec={"topologySpreadConstraints": [selecting]}),
        elsewhere(pod("d", labels={"app": "x"})),
    )
    assert one == two
    assert one.labels == (("app", "x"), ("run", "1"))
    assert (three.labels, three.namespace) == ((("run", "2"),), "default")
    assert (four.labels, four.namespace) == ((), "elsewhere")


def test_a_wish_to_be_spread_looks_at_nothing():
    wish = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    one, _ = shapes_of(pod("a", labels={"app": "x"}), pod("b", spec={"topologySpreadConstraints": [wish]}))
    assert (one.labels, one.namespace) == ((), "")


def test_terms_of_finished_pods_matter_to_nobody():
    one, _ = shapes_of(pod("a", labels={"app": "x"}), pod("b", phase="Succeeded", spec=near(app="x")))
    assert (one.labels, one.namespace) == ((), "")


def test_only_missing_config_maps_become_part_of_a_shape():
    spec = reading("here", "gone")
    one, two, three = shapes_of(
        pod("a", spec=spec), pod("b"), elsewhere(pod("c", spec=reading("here"))), config_map("here")
    )
    assert (one.constraints.config_maps, one.namespace) == (("gone",), "default")
    assert two.constraints.config_maps == ()
    assert (three.constraints.config_maps, three.namespace) == (("here",), "elsewhere")


def test_nobody_misses_a_config_map_where_none_was_listed():
    assert shapes_of(pod("a", spec=reading("gone")))[0].constraints.config_maps == ()


def test_config_maps_are_found_in_volumes_projections_and_environment():
    key = {"name": "e", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "k"}}}
    free = {"name": "f", "valueFrom": {"configMapKeyRef": {"name": "free", "key": "k", "optional": True}}}
    spec = {
        "containers": [mounter("p", "o", env=[key, free], envFrom=[{"configMapRef": {"name": "all"}}])],
        "initContainers": [{"envFrom": [{"configMapRef": {"name": "init"}}]}],
        "volumes": [
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "shown"}}, {"secret": {"name": "s"}}]}},
            {"name": "o", "configMap": {"name": "optional", "optional": True}},
        ],
    }
    shape = shapes_of(pod("a", spec=spec), config_map("any"))[0]
    assert shape.constraints.config_maps == ("all", "env", "init", "shown")


def test_an_unmounted_config_map_volume_is_not_required():
    volumes = [{"name": name, "configMap": {"name": name}} for name in ("app", "init", "debug", "nobody")]
    spec = {
        "volumes": volumes,
        "containers": [mounter("app", "elsewhere")],
        "initContainers": [mounter("init")],
        "ephemeralContainers": [mounter("debug")],
    }
    shape = shapes_of(pod("a", spec=spec), config_map("any"))[0]
    assert shape.constraints.config_maps == ("app", "debug", "init")


def test_config_maps_that_the_binder_makes_are_not_missing():
    made = pod("a", spec=reading("share-0", "share-0-evar", "own"), annotations={"runai/shared-gpu-configmap": "share"})
    assert shapes_of(made, config_map("any"))[0].constraints.config_maps == ("own",)


def test_claims_name_objects_so_their_namespace_counts():
    assert shapes_of(pod("a", spec=mounting("data")))[0].namespace == "default"


def test_gpus_in_claims_count_as_gpus_of_the_pod():
    def claim(name, count):
        request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}
        return other(
            "ResourceClaim", "resource.k8s.io/v1", name, namespace="default", spec={"devices": {"requests": [request]}}
        )

    template = claim("t", 4)
    template = {**template, "kind": "ResourceClaimTemplate", "spec": {"spec": template["spec"]}}
    named = [{"name": "one", "resourceClaimName": "c"}, {"name": "two", "resourceClaimTemplateName": "t"}]
    made = pod("a", requests={"cpu": "1"}, spec={"resourceClaims": named})
    shape = shapes_of(made, claim("c", 2), template)[0]
    assert shape.gpu.claimed == 6
    assert dict(shape.request)["gpu"] == 6000


def test_a_shape_holds_container_requests_and_whether_guaranteed():
    fixed = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    first = {"name": "first", "restartPolicy": "Always", "resources": {"limits": {"cpu": "2"}}}
    pods = [
        pod("burstable", requests={"cpu": "1"}, spec={"initContainers": [first]}),
        pod("fixed", spec={"containers": [fixed]}),
        pod("said-so", requests={"cpu": "1"}, status={"qosClass": "Guaranteed"}),
        pod("said-not", spec={"containers": [fixed]}, status={"qosClass": "Burstable"}),
    ]
    snapshot = taken(*pods, node("n"))
    found = {each.name: snapshot.shapes[number] for each, number in zip(snapshot.pods, snapshot.pod_shape, strict=True)}
    assert {name for name, shape in found.items() if shape.guaranteed} == {"fixed", "said-so"}
    assert found["burstable"].containers == (
        ContainerRequest(requests=(("cpu", 2000),), init=True, sidecar=True),
        ContainerRequest(requests=(("cpu", 1000),)),
    )


def test_equal_amounts_written_differently_share_one_shape():
    pods = [pod("a", requests={"cpu": "1"}), pod("b", requests={"cpu": "1000m", "example.com/none": "0"})]
    assert len(taken(*pods, node("n")).shapes) == 1


def test_the_axis_holds_nodes_and_requested_resources():
    snapshot = taken(pod("a", requests={"example.com/nic": "1"}), node("n"), queue("q"))
    assert snapshot.axis.names == ("cpu", "memory", "gpu", "pods", "example.com/nic")
    assert snapshot.requests.tolist() == [[0, 0, 0, 1, 1000]]


def test_a_terms_labels_tell_apart_only_its_namespaces_pods():
    """A tenant whose terms name the labels that controllers write would make each pod of the others unlike all."""
    others = [elsewhere(pod(name, labels={"job": name})) for name in ("x", "y")]
    mine = [pod("a", labels={"job": "a"}, spec=near(job="a")), pod("b", labels={"job": "b"})]
    *own, first, second = shapes_of(*mine, *others)
    assert [each.labels for each in own] == [(("job", "a"),), (("job", "b"),)]
    assert (first, first.labels) == (second, ())


def test_a_namespace_selector_makes_a_terms_labels_count_everywhere():
    far = near(job="a")
    far["affinity"]["podAffinity"][REQUIRED][0]["namespaceSelector"] = {}
    _, first, second = shapes_of(pod("a", spec=far), *(elsewhere(pod(each, labels={"job": each})) for each in "xy"))
    assert (first.labels, second.labels) == ((("job", "x"),), (("job", "y"),))


def test_thousands_of_label_keys_cost_no_lookup_per_pod():
    class Labels(dict):
        looks = 0

        def __contains__(self, key):
            self.looks += 1
            return super().__contains__(key)

    seen, keys = Labels(app="x", k1="y"), frozenset(f"k{number}" for number in range(5000))
    record = SimpleNamespace(
        traits=SimpleNamespace(config_maps=(), constraints=Constraints()),
        pod=SimpleNamespace(labels=seen, namespace="ml"),
    )
    library = SimpleNamespace(catalog=None)
    around = Surroundings(
        records=(), version=TableVersion(), library=library, label_keys={"ml": keys}, tokens=(), first_users={}
    )
    assert around.of(record).labels == (("k1", "y"),)
    assert seen.looks == 0
