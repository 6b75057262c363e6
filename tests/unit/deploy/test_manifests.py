import re
import tomllib
import uuid
from collections.abc import Iterator

import pytest

from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.cli.running.identity import ProcessIdentity
from kai.roles.admission.rotation import CONFIGURATIONS
from tests.unit.deploy.rendering import DEPLOY, ENTRIES, LASTING, Manifest, key, of_kind, render
from tests.unit.deploy.rendering import deployment as the_deployment

ROOT = DEPLOY.parent
DEPLOYED = {entry: [*render(LASTING), *render(DEPLOY / entry)] for entry in ENTRIES}
EVERY = [pytest.param(manifests, id=entry) for entry, manifests in DEPLOYED.items()]
OURS = {"kai-scheduler", "kai-resource-reservation", "kai-scale-adjust"}

every_entry = pytest.mark.parametrize("manifests", EVERY)


def containers(deployment: Manifest) -> Iterator[Manifest]:
    yield from deployment["spec"]["template"]["spec"]["containers"]


def names(manifests: list[Manifest], kind: str) -> set[tuple[str, str]]:
    return {key(manifest)[1:] for manifest in of_kind(manifests, kind)}


# --- References --------------------------------------------------------------------------------------------------


@every_entry
def test_namespaces_exist(manifests):
    used = {manifest["metadata"]["namespace"] for manifest in manifests if "namespace" in manifest["metadata"]}
    assert used <= {name for _, name in names(manifests, "Namespace")} == OURS


@every_entry
def test_bindings_join_accounts_and_roles_that_exist(manifests):
    accounts = names(manifests, "ServiceAccount")
    for kind, role_kinds in (("ClusterRoleBinding", {"ClusterRole"}), ("RoleBinding", {"Role"})):
        for binding in of_kind(manifests, kind):
            role = binding["roleRef"]
            assert role["kind"] in role_kinds
            assert (binding["metadata"].get("namespace", ""), role["name"]) in names(manifests, role["kind"])
            assert {(subject["namespace"], subject["name"]) for subject in binding["subjects"]} <= accounts
            assert {subject["kind"] for subject in binding["subjects"]} == {"ServiceAccount"}


@every_entry
def test_every_role_is_somebody_s(manifests):
    given = {
        (binding["metadata"].get("namespace", ""), binding["roleRef"]["name"])
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for binding in of_kind(manifests, kind)
    }
    assert given == names(manifests, "ClusterRole") | names(manifests, "Role")


@every_entry
def test_an_account_has_rights_or_no_token(manifests):
    bound = {
        (subject["namespace"], subject["name"])
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for binding in of_kind(manifests, kind)
        for subject in binding["subjects"]
    }
    with_token = {key(m)[1:] for m in of_kind(manifests, "ServiceAccount") if m["automountServiceAccountToken"]}
    assert with_token == bound


@every_entry
def test_deployments_run_under_accounts_that_exist(manifests):
    for deployment in of_kind(manifests, "Deployment"):
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        assert (deployment["metadata"]["namespace"], account) in names(manifests, "ServiceAccount")


@every_entry
def test_selectors_select_the_pods_of_one_deployment(manifests):
    pods = [deployment["spec"]["template"] for deployment in of_kind(manifests, "Deployment")]
    selectors = [deployment["spec"]["selector"]["matchLabels"] for deployment in of_kind(manifests, "Deployment")]
    selectors += [service["spec"]["selector"] for service in of_kind(manifests, "Service")]
    selectors += [budget["spec"]["selector"]["matchLabels"] for budget in of_kind(manifests, "PodDisruptionBudget")]
    for selector in selectors:
        assert sum(selector.items() <= pod["metadata"]["labels"].items() for pod in pods) == 1


@every_entry
def test_every_deployment_has_a_service_and_its_ports_exist(manifests):
    services = {service["metadata"]["name"]: service for service in of_kind(manifests, "Service")}
    deployments = {deployment["metadata"]["name"]: deployment for deployment in of_kind(manifests, "Deployment")}
    assert services.keys() == deployments.keys()
    for name, service in services.items():
        (container,) = deployments[name]["spec"]["template"]["spec"]["containers"]
        named = {port["name"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
        assert "http-metrics" in {port["name"] for port in service["spec"]["ports"]}


# --- Pods --------------------------------------------------------------------------------------------------------


@every_entry
def test_pods_meet_the_restricted_standard(manifests):
    for deployment in of_kind(manifests, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for container in containers(deployment):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@every_entry
def test_memory_is_limited_and_cpu_is_not(manifests):
    for deployment in of_kind(manifests, "Deployment"):
        for container in containers(deployment):
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"].keys() == {"memory"}


@every_entry
def test_pods_need_no_writable_volume_and_no_init_container(manifests):
    for deployment in of_kind(manifests, "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        assert "initContainers" not in spec
        assert all("secret" in volume for volume in spec.get("volumes", ()))  # a certificate, which is only read
        for container in containers(deployment):
            assert all(mount["readOnly"] for mount in container.get("volumeMounts", ()))
            # The image names the directory in which it keeps compiled kernels.
            assert "NUMBA_CACHE_DIR" not in {variable["name"] for variable in container["env"]}


def downward(container: Manifest, pod: Manifest) -> dict[str, str]:
    """Return the environment that a container gets from the fields of its pod."""
    paths = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    return {name: pod[path] for name, path in paths.items()}


@every_entry
def test_a_restarted_container_keeps_its_identity(manifests):
    for deployment in of_kind(manifests, "Deployment"):
        for container in containers(deployment):
            command, *words = container["args"]
            assert command == "run"
            given = read_flags(words, FLAGS, ROLES, TOGETHER)
            pod = {"metadata.name": "p-1", "metadata.namespace": "kai-scheduler", "metadata.uid": str(uuid.uuid4())}
            environment = downward(container, pod)
            life = ProcessIdentity.begin(environment, given.roles or TOGETHER)
            life.end()
            lease = life.lease(given, environment["POD_NAMESPACE"], "lock")
            assert lease.identity.startswith(f"{lease.container}_")
            assert pod["metadata.uid"] in lease.container


@every_entry
def test_probes_ask_what_they_should(manifests):
    for deployment in of_kind(manifests, "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        paths = {probe: container[probe]["httpGet"]["path"] for probe in container if probe.endswith("Probe")}
        assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {container[probe]["httpGet"]["port"] for probe in paths} == {"probes"}
        assert f"--health-probe-bind-address=:{ports['probes']}" in container["args"]


@every_entry
def test_the_image_has_the_version_of_the_package(manifests):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {c["image"] for deployment in of_kind(manifests, "Deployment") for c in containers(deployment)}
    assert images == {f"kai:{version}"}
    for each in of_kind(manifests, "Deployment"):
        for labels in (each["metadata"]["labels"], each["spec"]["template"]["metadata"]["labels"]):
            assert labels["app.kubernetes.io/version"] == version
        assert "app.kubernetes.io/version" not in each["spec"]["selector"]["matchLabels"]


def test_containerfile_pages_and_readme_name_one_image():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    pages = [ROOT / "Containerfile", ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {match for page in pages for match in re.findall(r"\bkai:([0-9][\w.]*)\b", page.read_text())}
    assert named == {version}
    builds = [line for page in pages for line in page.read_text().splitlines() if " build " in line and " -t " in line]
    assert builds
    assert all(f":{version}" in line for line in builds)


@every_entry
def test_every_flag_is_documented(manifests):
    documented = set(re.findall(r"`(--[a-z-]+)`", (ROOT / "docs" / "reference" / "flags.md").read_text()))
    for deployment in of_kind(manifests, "Deployment"):
        flags = [argument for container in containers(deployment) for argument in container.get("args", ())]
        assert {flag.split("=")[0] for flag in flags if flag.startswith("-")} <= documented


def test_one_replica_never_meets_its_successor():
    for entry in ("base", "overlays/split"):
        for each in deciding(DEPLOYED[entry]):
            assert each["spec"]["replicas"] == 1
            assert each["spec"]["strategy"] == {"type": "Recreate"}


def deciding(manifests):
    """Return the Deployments that act on what they see; admission only answers, from any number of replicas."""
    found = [each for each in of_kind(manifests, "Deployment") if each["metadata"]["name"] != "admission"]
    assert found
    return found


@pytest.mark.parametrize("entry", ["overlays/ha", "overlays/split-ha"])
def test_two_replicas_elect_a_leader(entry):
    for each in deciding(DEPLOYED[entry]):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert each["spec"]["replicas"] == 2
        assert "--leader-elect=true" in container["args"]


@pytest.mark.parametrize("entry", ["overlays/ha", "overlays/split-ha"])
def test_replicas_spread_and_roll_out_on_few_nodes(entry):
    for each in of_kind(DEPLOYED[entry], "Deployment"):
        (term,) = apart(each)["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"] == each["spec"]["selector"]
        assert each["spec"]["replicas"] == 2
        assert each["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def apart(each):
    return each["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]


@every_entry
def test_nodes_without_gpus_are_preferred(manifests):
    for each in of_kind(manifests, "Deployment"):
        affinity = each["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
        assert affinity.keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}
        assert {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"} in term["preference"]["matchExpressions"]


@every_entry
def test_every_deployment_drains_one_pod_at_a_time(manifests):
    budgets = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "PodDisruptionBudget")}
    deployments = {each["metadata"]["name"]: each["spec"]["selector"] for each in of_kind(manifests, "Deployment")}
    assert budgets == {name: {"maxUnavailable": 1, "selector": chosen} for name, chosen in deployments.items()}


# --- What lasts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [".", *ENTRIES])
def test_taking_kai_away_takes_nothing_that_workloads_need(entry):
    """``kubectl delete -k`` deletes all that an entry has: no kind, no namespace, no class of a workload."""
    manifests = render(DEPLOY / entry)
    kinds = {each["kind"] for each in manifests}
    assert not kinds & {"CustomResourceDefinition", "Namespace", "Queue", "Topology", "SchedulingShard"}
    assert {each["metadata"]["name"] for each in of_kind(manifests, "PriorityClass")} == {"kai-system"}
    account = ("ServiceAccount", "kai-resource-reservation", "kai-resource-reservation")
    assert account not in {key(each) for each in manifests}
    assert account in {key(each) for each in render(LASTING)}


def test_what_lasts_runs_nothing():
    kinds = {each["kind"] for each in render(LASTING)}
    lasting = {"CustomResourceDefinition", "Namespace", "PriorityClass", "ServiceAccount", "Role", "RoleBinding"}
    assert kinds == lasting


def test_each_role_has_an_account_in_the_split_form():
    deployments = of_kind(DEPLOYED["overlays/split"], "Deployment")
    assert len(deployments) == len(ROLES)
    roles = {
        deployment["spec"]["template"]["spec"]["serviceAccountName"]: container["args"][:2]
        for deployment in deployments
        for container in deployment["spec"]["template"]["spec"]["containers"]
    }
    assert len(roles) == len(deployments)
    assert all(arguments == ["run", role] for role, arguments in roles.items())


def test_namespaces_enforce_a_standard():
    enforced = {
        manifest["metadata"]["name"]: manifest["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for manifest in of_kind(DEPLOYED["base"], "Namespace")
    }
    assert enforced == {
        "kai-scheduler": "restricted",
        "kai-resource-reservation": "restricted",
        "kai-scale-adjust": "baseline",
    }


def test_priority_classes_are_those_that_the_pod_grouper_names():
    values = {m["metadata"]["name"]: m["value"] for m in of_kind(DEPLOYED["base"], "PriorityClass")}
    assert values.pop("kai-system") == 1_000_000_000  # ours alone; the greatest that Kubernetes lets anybody have
    assert values == {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}


# --- Webhooks ----------------------------------------------------------------------------------------------------

HOOKS = [
    (configuration["kind"], hook)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for configuration in of_kind(DEPLOYED["base"], kind)
    for hook in configuration["webhooks"]
]
EACH_HOOK = pytest.mark.parametrize(("kind", "hook"), [pytest.param(*h, id=h[1]["name"]) for h in HOOKS])


@every_entry
def test_every_form_has_all_webhooks_and_two_replicas(manifests):
    found = {
        (kind, name)
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for _, name in names(manifests, kind)
    }
    assert found == set(CONFIGURATIONS) - {("MutatingWebhookConfiguration", "kai-user-notes")}  # off by default
    assert the_deployment(manifests, "admission")["spec"]["replicas"] == 2


@every_entry
def test_the_certificate_comes_from_one_place(manifests):
    """Kai makes it and keeps it in a Secret that is installed empty, or cert-manager makes it and it is mounted."""
    spec = the_deployment(manifests, "admission")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    given = read_flags(container["args"][1:], FLAGS, ROLES, TOGETHER)
    certificates = of_kind(manifests, "Certificate")
    if certificates:
        assert given.text("webhook-secret") == ""
        (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
        assert given.text("webhook-cert-dir") == mount["mountPath"]
        assert certificates[0]["spec"]["secretName"] == volume["secret"]["secretName"]
    else:
        (secret,) = of_kind(manifests, "Secret")
        assert secret["metadata"]["name"] == given.text("webhook-secret")
        assert secret.keys() == {"apiVersion", "kind", "metadata", "type"}
        assert "volumes" not in spec


def test_the_role_writes_only_its_secret_and_configurations():
    rules = [
        (rule["resources"][0], name, tuple(rule["verbs"]))
        for kind in ("Role", "ClusterRole")
        for role in of_kind(DEPLOYED["base"], kind)
        for rule in role["rules"]
        for name in rule.get("resourceNames", [""])
        if rule["resources"][0] == "secrets" or "webhook" in rule["resources"][0]
    ]
    plural = {kind: f"{kind.lower()}s" for kind, _ in CONFIGURATIONS}
    expected = {(plural[kind], name, ("get", "patch")) for kind, name in CONFIGURATIONS}
    assert set(rules) == {*expected, ("secrets", "kai-webhooks", ("get", "patch"))}
    assert len(rules) == len(expected) + 1


@EACH_HOOK
def test_a_webhook_times_out_soon_without_side_effects(kind, hook):
    assert hook["timeoutSeconds"] <= 3
    assert hook["sideEffects"] == "None"
    assert all("DELETE" not in rule["operations"] for rule in hook["rules"])


@EACH_HOOK
def test_a_webhook_leads_to_a_service_that_exists(kind, hook):
    service = hook["clientConfig"]["service"]
    found = {key(m)[1:]: m for m in of_kind(DEPLOYED["base"], "Service")}
    ports = found[service["namespace"], service["name"]]["spec"]["ports"]
    assert 443 in {port["port"] for port in ports}


@EACH_HOOK
def test_our_outage_stops_nobody_else_s_pods(kind, hook):
    if any("pods" in rule["resources"] for rule in hook["rules"]):
        expressions = {condition["expression"] for condition in hook["matchConditions"]}
        assert "object.spec.schedulerName == 'kai-scheduler'" in expressions
        (excluded,) = hook["namespaceSelector"]["matchExpressions"]
        assert excluded["key"] == "kubernetes.io/metadata.name"
        assert excluded["operator"] == "NotIn"
        assert set(excluded["values"]) >= {"kube-system", *OURS}
    else:
        assert {rule["apiGroups"][0] for rule in hook["rules"]} <= {"scheduling.run.ai", "kai.scheduler"}
        assert hook["failurePolicy"] == "Ignore"


@EACH_HOOK
def test_only_pods_that_share_gpus_wait_for_us(kind, hook):
    if hook["failurePolicy"] != "Ignore":
        assert kind == "MutatingWebhookConfiguration"
        assert any("gpu-fraction" in condition["expression"] for condition in hook["matchConditions"])
