from pathlib import Path

import attrs
import pytest

from kai.answers.cases.live_cluster import list_templates, read_cluster
from kai.answers.offline.run import simulate
from kai.answers.outcomes.plan import answer
from kai.basics.errors import ConfigError, UnreachableError
from kai.cluster.transport.access import Access
from kai.lab.sources.loading import read_case
from kai.manifests.workloads import trainer
from tests.doubles.list_server import listing, manifests_of

LAB = Path("examples/lab")


class Still:
    """A clock on which waiting takes no time."""

    def __init__(self):
        self.time = 1000.0

    def now(self):
        return 5.0

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def server():
    with listing(manifests_of(LAB)) as found:
        yield found


def test_a_live_cluster_decides_like_its_manifests(server, tmp_path):
    live = read_cluster(Access(kubeconfig=server.kubeconfig(tmp_path)))
    written = read_case(str(LAB))
    same = attrs.evolve(live, now=written.now, name=written.name)
    assert answer(simulate(same)) == answer(simulate(written))


def test_a_live_case_has_its_contexts_name_and_time(server, tmp_path):
    case = read_cluster(Access(kubeconfig=server.kubeconfig(tmp_path, namespace="ml")), clock=Still())
    assert (case.title, case.now) == ("prod", 5.0)
    origin = case.origin
    assert (origin.type, origin.cluster, origin.namespace, origin.revision) == ("live", "prod", "ml", "7")


def test_reading_a_cluster_only_gets_and_impersonates(server, tmp_path):
    read_cluster(Access(kubeconfig=server.kubeconfig(tmp_path), impersonated="jane"))
    assert {method for method, _, _ in server.requests} == {"GET"}
    assert {headers["Impersonate-User"] for _, _, headers in server.requests} == {"jane"}
    assert {headers["Authorization"] for _, _, headers in server.requests} == {"Bearer abc"}


def test_an_unreachable_cluster_is_named_by_its_context(tmp_path):
    with listing([]) as gone:
        path = gone.kubeconfig(tmp_path)
    with pytest.raises(UnreachableError) as caught:
        read_cluster(Access(kubeconfig=path), clock=Still())
    address = gone.address.removeprefix("http://")
    assert str(caught.value) == f'cannot reach the cluster of context "prod": {address} refused the connection'
    assert caught.value.detail.startswith("tried 3 times in ")


def test_an_unknown_context_is_refused_with_the_known_ones(server, tmp_path):
    with pytest.raises(ConfigError, match=r"--context: found 'nope', expected one of prod, staging"):
        read_cluster(Access(kubeconfig=server.kubeconfig(tmp_path), context="nope"))


def test_of_many_contexts_a_few_are_named(tmp_path):
    path = tmp_path / "many"
    names = "".join(f"- {{name: c{at:02}, context: {{cluster: c, user: u}}}}\n" for at in range(40))
    path.write_text(f"contexts:\n{names}")
    with pytest.raises(ConfigError) as caught:
        Access(kubeconfig=str(path), context="nope").check()
    found = "command line: --context: found 'nope', expected one of c00, c01, c02, c03, c04, c05 and 34 more"
    assert str(caught.value) == found


@pytest.mark.parametrize(("line", "found"), [("current-context: gone\n", "'gone'"), ("", "nothing")])
def test_an_unknown_current_context_names_the_known_ones(tmp_path, line, found):
    path = tmp_path / "stale"
    path.write_text(f"{line}contexts:\n- {{name: prod, context: {{cluster: c, user: u}}}}\n")
    with pytest.raises(ConfigError) as caught:
        Access(kubeconfig=str(path)).check()
    assert str(caught.value) == f"{path}: current-context: found {found}, expected one of prod, here or as --context"
    Access(kubeconfig=str(path), context="prod").check()


def test_a_machine_without_a_kubeconfig_has_no_cluster(tmp_path, monkeypatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UnreachableError, match="no cluster: found no kubeconfig, expected --kubeconfig, KUBECONFIG or"):
        read_cluster(Access())


def test_other_contexts_are_known(server, tmp_path):
    path = server.kubeconfig(tmp_path)
    assert Access(kubeconfig=path).others == ("staging",)
    assert Access(kubeconfig=path, context="staging").others == ("prod",)


def test_templates_are_listed_where_their_kind_is_served(tmp_path):
    runtime = {"metadata": {"name": "t"}}
    with listing([]) as server:
        access = Access(kubeconfig=server.kubeconfig(tmp_path))
        assert list_templates(access, trainer.LISTED) == ()
        server.lists["trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"] = [runtime]
        (found,) = list_templates(access, trainer.LISTED)
    assert (found["kind"], found["metadata"]["name"]) == ("ClusterTrainingRuntime", "t")
