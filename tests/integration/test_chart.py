"""The chart: Helm makes of it what kustomize makes, and a life from install to uninstall on a real API server."""

import subprocess

import pytest
import yaml

from tests.integration.client import Refused, until
from tests.integration.together import GPU, NAMESPACE, add_node, add_queues, an_object, own_environment, running
from tests.unit.deploy.charting import CHART
from tests.unit.deploy.rendering import DEPLOY, LASTING, deployment, key, of_kind, render

KUBERNETES = "--kube-version=1.36.0"  # without a server Helm supposes an old one
OURS = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "kai-0.1.0"}
KEEP = {"helm.sh/resource-policy": "keep"}
HA = ("--set=replicas=2",)


def ran(helm, *words, values=None):
    """Run helm, with values from a document where there are some; return what it said."""
    given = () if values is None else ("--values=-",)
    text = None if values is None else yaml.safe_dump(values)
    done = subprocess.run([helm, *words, *given], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(helm, *words, namespace=NAMESPACE, values=None):
    command = ("template", "kai", str(CHART), f"--namespace={namespace}", KUBERNETES)
    text = ran(helm, *command, *words, values=values)
    return [each for each in yaml.safe_load_all(text) if each]


def plain(manifests):
    """Return manifests by their keys, without what says that Helm made them."""
    out = {}
    for each in manifests:
        metadata = dict(each["metadata"])
        labels = {name: text for name, text in metadata["labels"].items() if OURS.get(name) != text}
        annotations = {name: text for name, text in metadata.pop("annotations", {}).items() if KEEP.get(name) != text}
        extra = {"annotations": annotations} if annotations else {}
        out[key(each)] = {**each, "metadata": {**metadata, "labels": labels, **extra}}
    return out


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        ((), "base"),
        (HA, "overlays/ha"),
        (("--set=form=split",), "overlays/split"),
        (("--set=form=split", *HA), "overlays/split-ha"),
        (("--set=webhooks.certificates=cert-manager",), "overlays/cert-manager"),
    ],
)
def test_the_chart_renders_what_kustomize_renders(helm, words, entry):
    theirs = plain(rendered(helm, *words))
    wanted = {
        each: manifest
        for each, manifest in plain([*render(LASTING), *render(DEPLOY / entry)]).items()
        if each[0] != "CustomResourceDefinition" and each != ("Namespace", "", NAMESPACE)
    }
    assert theirs.keys() == wanted.keys()
    for each, manifest in wanted.items():
        assert theirs[each] == manifest, each


def test_a_shadow_is_rendered_without_other_components(helm):
    words = ("--set=form=shadow,dashboard.enabled=true,monitoring.enabled=true,queueAccess=required",)
    theirs, wanted = plain(rendered(helm, *words)), plain(render(DEPLOY / "overlays" / "shadow"))
    (container,) = deployment(list(wanted.values()), "kai-shadow")["spec"]["template"]["spec"]["containers"]
    container["args"].append("--queue-access=required")
    assert theirs == wanted


def test_components_are_values(helm):
    words = ("--set=webhooks.deviceAccess=true,monitoring.enabled=true,monitoring.labels.release=prometheus",)
    theirs = plain(rendered(helm, *words))
    added = (DEPLOY / "components" / name for name in ("device-access", "monitoring"))
    wanted = plain(render(DEPLOY / "base", *added))
    for each, manifest in wanted.items():
        if each[0] in {"ServiceMonitor", "PrometheusRule"}:
            assert theirs[each]["metadata"]["labels"].pop("release") == "prometheus"
        assert theirs[each] == manifest, each


def test_a_volume_for_the_history_is_a_value(helm):
    theirs = plain(rendered(helm, "--set=history.enabled=true"))
    wanted = plain(render(DEPLOY / "base", DEPLOY / "components" / "history"))
    (claim,) = (each for each in wanted if each[0] == "PersistentVolumeClaim")
    assert theirs[claim] == wanted[claim]
    assert deployment(list(theirs.values()), "kai") == deployment(list(wanted.values()), "kai")
    values = {
        "form": "split",
        "history": {"enabled": True, "existingClaim": "ours", "storageClass": "fast", "size": "9Gi"},
        "shards": [{"name": "west", "nodePool": "west"}],
    }
    manifests = rendered(helm, values=values)
    (made,) = of_kind(manifests, "PersistentVolumeClaim")
    assert (made["metadata"]["name"], made["spec"]["storageClassName"]) == ("kai-scheduler-west-history", "fast")
    assert made["spec"]["resources"]["requests"]["storage"] == "9Gi"
    mounted = {
        each["metadata"]["name"]: [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in each["spec"]["template"]["spec"].get("volumes", ())
            if "persistentVolumeClaim" in volume
        ]
        for each in of_kind(manifests, "Deployment")
    }
    assert {name: claims for name, claims in mounted.items() if claims} == {
        "kai-scheduler-default": ["ours"],
        "kai-scheduler-west": ["kai-scheduler-west-history"],
    }


def test_another_namespace_is_taken_everywhere(helm):
    text = yaml.safe_dump_all(rendered(helm, "--set=form=split,monitoring.enabled=true", namespace="ai"))
    left = [line.strip() for line in text.splitlines() if "kai-scheduler" in line]
    known = ("schedulerName", "kai-scheduler-default", "/validate-kai-scheduler")
    assert [line for line in left if not any(each in line for each in known)] == []


def test_a_shard_has_its_own_scheduler_and_configuration(helm):
    values = {
        "form": "split",
        "shards": [{"name": "west", "nodePool": "west-1", "configuration": {"kind": "Profile", "with": {}}}],
        "extraArgs": {"binder": ["--v=5"]},
        "resources": {"binder": {"limits": {"memory": "9Gi"}}},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "image": {"repository": "r.example/kai", "digest": f"sha256:{'0' * 64}"},
    }
    manifests = rendered(helm, values=values)
    west, binder = (deployment(manifests, name)["spec"] for name in ("kai-scheduler-west", "binder"))
    (container,) = west["template"]["spec"]["containers"]
    assert west["selector"]["matchLabels"] == {"app": "kai-scheduler-west"}
    assert {"--partition-label-value=west-1", "--config=/configuration/config.yaml"} <= set(container["args"])
    (volume,) = west["template"]["spec"]["volumes"]
    configurations = {each["metadata"]["name"]: each["data"]["config.yaml"] for each in of_kind(manifests, "ConfigMap")}
    assert yaml.safe_load(configurations[volume["configMap"]["name"]]) == {"kind": "Profile", "with": {}}
    assert west["template"]["spec"]["tolerations"] == values["tolerations"]
    (container,) = binder["template"]["spec"]["containers"]
    assert container["args"][-1] == "--v=5"
    assert container["resources"]["limits"] == {"memory": "9Gi"}
    assert container["resources"]["requests"]["memory"] == "200Mi"
    assert container["image"] == f"r.example/kai@sha256:{'0' * 64}"


def test_volumes_variables_and_pull_secrets_reach_their_pods(helm):
    variable = {"name": "USAGE_DB", "valueFrom": {"secretKeyRef": {"name": "usage", "key": "address"}}}
    values = {
        "imagePullSecrets": [{"name": "registry"}],
        "scheduler": {"configuration": {"kind": "Profile"}},
        "extraEnv": {"kai": [variable]},
        "extraVolumes": {"kai": [{"name": "log", "emptyDir": {}}]},
        "extraVolumeMounts": {"kai": [{"name": "log", "mountPath": "/var/lib/kai"}]},
    }
    manifests = rendered(helm, values=values)
    pod = deployment(manifests, "kai")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["env"][-1] == variable
    assert container["env"][0]["name"] == "POD_NAME"
    assert [each["name"] for each in container["volumeMounts"]] == ["configuration", "log"]
    assert [each["name"] for each in pod["volumes"]] == ["configuration", "log"]
    (other,) = deployment(manifests, "admission")["spec"]["template"]["spec"]["containers"]
    assert variable not in other["env"]
    accounts = {each["metadata"]["name"]: each.get("imagePullSecrets") for each in of_kind(manifests, "ServiceAccount")}
    assert accounts["kai-resource-reservation"] == accounts["scaling-pod"] == values["imagePullSecrets"]
    assert accounts["kai"] is None, "its pods have them themselves"


@pytest.mark.parametrize("form", ["single", "split", "shadow"])
def test_openshift_pods_name_no_user_and_binders_set_finalizers(helm, form):
    manifests = rendered(helm, values={"form": form, "openshift": True})
    for each in of_kind(manifests, "Deployment"):
        assert each["spec"]["template"]["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    finalizers = {"apiGroups": [""], "resources": ["pods/finalizers"], "verbs": ["update"]}
    roles = {each["metadata"]["name"] for each in of_kind(manifests, "ClusterRole") if finalizers in each["rules"]}
    assert roles == (set() if form == "shadow" else {"kai:binder"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("form=double", "form"),
        ("replcas=2", "replcas"),
        ("image.digest=sha256:1", "digest"),
        ("form=shadow,replicas=2", "expected 1"),
        ("shards[0].name=west,shards[0].nodePool=w", 'expected form "split"'),
        ("form=split,shards[0].name=a,shards[0].nodePool=w,shards[1].name=b,shards[1].nodePool=w", 'nodePool "w"'),
        ("form=split,shards[0].name=a,shards[0].nodePool=v,shards[1].name=a,shards[1].nodePool=w", 'name "a"'),
        ("image.repository=r.example:5000/kai:1", "repository"),
        (
            "extraArgs.sceduler={--v=4}",
            'extraArgs: found "sceduler", expected the name of a Deployment: kai, admission',
        ),
        ("resources.kay.limits.memory=8Gi", 'resources: found "kay"'),
        ("extraEnv.kai[0].value=x", "name"),
        ("extraEnv.kai[0].name=X,extraEnv.kai[0].value=1", "'/extraEnv/kai/0/value': got number, want string"),
        ("extraVolumeMounts.kai[0].name=log", "missing property 'mountPath'"),
        ("tolerations[0].key=gpu,tolerations[0].value=true", "'/tolerations/0/value': got boolean, want string"),
        ("priorityClassName=My Class", "priorityClassName"),
        ("resources.kai.limit.memory=8Gi", "limit"),
        ("image.tag=a b", "tag"),
        ("form=split,shards[0].name=west,shards[0].nodePool=a b", "nodePool"),
        ("podLabels.app=mine", 'podLabels: found "app"'),
        ("webhooks.enabled=false,webhooks.deviceAccess=true", "deviceAccess: found true with webhooks.enabled false"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_words(helm, words, message):
    command = [helm, "template", "kai", str(CHART), KUBERNETES, f"--set={words}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr


def paths(values, before=""):
    """Yield each value of the chart, and each that has others, by its path."""
    for name, value in values.items():
        yield before + name
        yield from paths(value, f"{before}{name}.") if isinstance(value, dict) else ()


def test_an_empty_value_is_the_default_or_refused(helm):
    """Helm takes away what a file leaves empty: policies, say, would be gone without a word."""
    command = [helm, "template", "kai", str(CHART), KUBERNETES]
    usual = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for path in paths(yaml.safe_load((CHART / "values.yaml").read_text())):
        done = subprocess.run([*command, f"--set={path}=null"], capture_output=True, text=True, check=False)
        name = path.rpartition(".")[2]
        assert done.stdout == usual or f"missing property '{name}'" in done.stderr, path


def test_the_chart_has_no_fault_that_helm_finds(helm):
    ran(helm, "lint", str(CHART), "--strict", KUBERNETES)


# --- A life --------------------------------------------------------------------------------------------------------


def a_pod(name):
    labels = {"kai.scheduler/queue": "team"}
    resources = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none", "resources": resources}]}
    return an_object("v1", "Pod", name, "default", metadata={"labels": labels}, spec=spec)


def test_from_install_over_upgrade_and_rollback_to_uninstall(helm, bare_control_plane, tmp_path):
    plane, admin = bare_control_plane, bare_control_plane.admin
    config = f"--kubeconfig={plane.kubeconfig(admin, 'admin')}"
    home = f"--namespace={NAMESPACE}"
    # The API server would ask webhooks whose pods no controller here makes.
    chart = (str(CHART), home, config, "--set=webhooks.enabled=false")
    notes = ran(helm, "install", "kai", *chart, "--create-namespace")
    assert "is installed in kai-scheduler, from the image kai:0.1.0" in notes
    assert "share GPUs: webhooks.enabled is false" in notes
    admin.ensure(an_object("v1", "Namespace", "default"))
    add_queues(admin)
    add_node(admin, "n1", {})

    def installed():
        return admin.get(an_object("apps/v1", "Deployment", "kai", NAMESPACE))["spec"]

    with running(plane, tmp_path, environment=own_environment(admin, "kai:0.1.0")):
        admin.create(a_pod("first"))
        bound(admin, "first")
        ran(helm, "upgrade", "kai", *chart, *HA, "--set=image.tag=0.1.1")
        assert installed()["replicas"] == 2
        assert installed()["template"]["spec"]["containers"][0]["image"] == "kai:0.1.1"
        admin.create(a_pod("second"))
        bound(admin, "second")
    ran(helm, "rollback", "kai", home, config)
    assert installed()["replicas"] == 1
    assert installed()["strategy"] == {"type": "Recreate"}
    assert installed()["template"]["spec"]["containers"][0]["image"] == "kai:0.1.0"

    ran(helm, "uninstall", "kai", home, config)
    assert not admin.list("apps/v1", "Deployment")
    assert not admin.list("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
    assert {each["metadata"]["name"] for each in admin.list("scheduling.run.ai/v2", "Queue")} >= {"top", "team"}
    assert admin.list("scheduling.run.ai/v2alpha2", "PodGroup")
    assert admin.get(an_object("v1", "ServiceAccount", "kai-resource-reservation", "kai-resource-reservation"))
    assert admin.get(an_object("scheduling.k8s.io/v1", "PriorityClass", "train"))
    # What stayed is taken over by the next installation of the same name.
    ran(helm, "install", "kai", *chart)
    assert installed()["replicas"] == 1
    ran(helm, "upgrade", "kai", *chart, "--set=queueAccess=required")
    until(lambda: "expected a queue that allows namespace default" in refused(admin), "the queue to be closed")
    (container,) = installed()["template"]["spec"]["containers"]
    assert "--queue-access=required" in container["args"]
    opened = {"metadata": {"annotations": {"kai.scheduler/allowed-namespaces": "default"}}}
    admin.patch(an_object("scheduling.run.ai/v2", "Queue", "team"), opened)
    until(lambda: not refused(admin), "the queue to be open")


def refused(admin):
    """Return why the API server lets no pod into the queue, "" if it would."""
    try:
        admin.create(a_pod("third"), dryRun="All")
    except Refused as refusal:
        return refusal.message
    return ""


def bound(admin, name):
    until(lambda: admin.get(an_object("v1", "Pod", name, "default"))["spec"].get("nodeName"), f"{name} to be bound")
