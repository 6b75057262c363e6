"""A cycle's input is a file that our simulation, like the peer's tool, can read."""

import io
import json
import tempfile
import zipfile

import attrs
import pytest

from kai.api.codec.structuring import unstructure
from kai.basics.errors import InputError
from kai.deciding.configuration.profile_reading import read_configuration
from kai.facts.model.groups import Shares
from kai.facts.model.placement import NoRoom, Past
from kai.lab.sources.archive import read_archive
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.dump import address_without_password, archive, raw_objects, write_archive
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making

OBJECTS = making.objects(
    making.queue("q"),
    making.group("g"),
    making.group("foreign", metadata={"labels": {"kai.scheduler/node-pool": "x"}}),
    making.pod("p", group="g"),
    making.node("n1"),
    making.bind_request("p", "n1"),
    making.other("Namespace", "v1", "default"),
)
GIVEN = CycleInput(
    objects=OBJECTS, now=1_700_000_000.0, cycle=7, past=Past(awaited=("default/g",)), grants=(("go", 3), ("stop", 1))
)


def document(settings):
    with zipfile.ZipFile(io.BytesIO(archive(GIVEN, settings))) as file:
        assert file.namelist() == ["snapshot.json"]
        return json.loads(file.read("snapshot.json"))


def test_objects_omit_their_kind_and_other_shards_are_omitted():
    raw = document(SchedulerSettings())["rawObjects"]
    assert [each["metadata"]["name"] for each in raw["podGroups"]] == ["g"]
    assert raw["pods"] == [
        {key: value for key, value in unstructure(OBJECTS.pods[0]).items() if key not in {"kind", "apiVersion"}}
    ]
    assert raw["bindRequests"][0]["spec"] == {"podName": "p", "selectedNode": "n1"}
    assert raw["resourceClaims"] == []
    assert "namespaces" not in raw


def test_config_maps_are_named_without_what_is_in_them():
    found = making.objects(
        making.other("ConfigMap", "v1", "settings", namespace="default", data={"password": "hidden"})
    )
    raw = raw_objects(found, SchedulerSettings())["configMaps"]
    assert raw == [{"metadata": {"name": "settings", "namespace": "default", "uid": "uid-settings"}}]


def test_parameters_have_the_peers_names_and_omit_zero():
    found = document(SchedulerSettings())
    assert found["schedulerParams"] == {
        "schedulerName": "kai-scheduler",
        "partitionParams": {"NodePoolLabelKey": "kai.scheduler/node-pool", "NodePoolLabelValue": ""},
        "maxNumberConsolidationPreemptees": 16,
        "useSchedulingSignatures": True,
        "fullHierarchyFairness": True,
        "allowConsolidatingReclaim": True,
        "numOfStatusRecordingWorkers": 5,
        "globalDefaultStalenessGracePeriod": 60_000_000_000,
        "schedulePeriod": 1_000_000_000,
        "stuckInReleasingThreshold": 120_000_000_000,
        "queueLabelKey": "kai.scheduler/queue",
    }
    assert found["kai"] == {
        "now": 1_700_000_000.0,
        "cycle": 7,
        "kubernetes": "1.37",
        "awaited": ["default/g"],
        "grants": [["go", 3], ["stop", 1]],
        "objects": {"namespaces": [{"metadata": {"name": "default", "uid": "uid-default"}}]},
    }


def test_our_simulation_reads_it_and_takes_the_same_configuration(tmp_path):
    settings = SchedulerSettings(dump_folder=str(tmp_path))
    path = write_archive(GIVEN, settings, "test")
    case = read_archive(tmp_path / path.rpartition("/")[2], "snapshot")
    assert case.objects.pods == OBJECTS.pods
    assert case.configuration.actions == settings.configuration.actions
    assert case.configuration.plugins == settings.configuration.plugins
    assert case.configuration.parameters == settings.configuration.parameters
    assert case.past.awaited == ("default/g",)
    assert case.notes == ()


def test_refusals_are_archived_and_read_back(tmp_path):
    refused = (NoRoom(namespace="default", pod="p", uid="uid-p", node="n1", reason="no room"),)
    settings = SchedulerSettings(dump_folder=str(tmp_path))
    path = write_archive(attrs.evolve(GIVEN, past=Past(refused=refused)), settings, "test")
    assert read_archive(tmp_path / path.rpartition("/")[2], "snapshot").past.refused == refused


def test_evictions_of_the_hour_are_archived_and_read_back(tmp_path):
    settings = SchedulerSettings(dump_folder=str(tmp_path))
    path = write_archive(attrs.evolve(GIVEN, past=Past(evicted=(("a", 2000), ("b", 500)))), settings, "test")
    assert read_archive(tmp_path / path.rpartition("/")[2], "snapshot").past.evicted == (("a", 2000), ("b", 500))


def test_what_budgets_protected_is_in_the_archive(tmp_path):
    settings = SchedulerSettings(dump_folder=str(tmp_path))
    path = write_archive(attrs.evolve(GIVEN, past=Past(protected=("uid-a",))), settings, "test")
    assert read_archive(tmp_path / path.rpartition("/")[2], "snapshot").past.protected == ("uid-a",)


@pytest.mark.parametrize("protected", [{}, "uid", [1]])
def test_protected_pods_that_are_none_are_named(protected, tmp_path):
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as file:
        file.writestr("snapshot.json", json.dumps({"rawObjects": {}, "kai": {"protected": protected}}))
    with pytest.raises(InputError, match=r"snapshot.json: kai.protected: found .*, expected a list of UIDs"):
        read_archive(tmp_path / "s.zip", "snapshot")


@pytest.mark.parametrize("evicted", [[1], {"a": "2"}, {"a": True}])
def test_evictions_that_are_none_are_named(evicted, tmp_path):
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as file:
        file.writestr("snapshot.json", json.dumps({"rawObjects": {}, "kai": {"evicted": evicted}}))
    with pytest.raises(InputError, match=r"snapshot.json: kai.evicted: found .*, expected thousandths"):
        read_archive(tmp_path / "s.zip", "snapshot")


@pytest.mark.parametrize("refused", [{}, [1], [{"pod": "p"}], [{"pod": 1}]])
def test_refusals_that_are_none_are_named(refused, tmp_path):
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as file:
        file.writestr("snapshot.json", json.dumps({"rawObjects": {}, "kai": {"refused": refused}}))
    with pytest.raises(InputError, match=r"s.zip: snapshot.json: kai.refused: found .*, expected a list of objects"):
        read_archive(tmp_path / "s.zip", "s.zip")


def test_past_usage_is_archived_and_read_back(tmp_path):
    usage = {"q": Shares(cpu=0.25, gpu=0.5)}
    settings = SchedulerSettings(dump_folder=str(tmp_path))
    path = write_archive(attrs.evolve(GIVEN, past=Past(usage=usage)), settings, "test")
    assert read_archive(tmp_path / path.rpartition("/")[2], "snapshot").past.usage == usage


@pytest.mark.parametrize("usage", [{"q": 5}, {"q": {"tpu": 1}}, {"q": {"gpu": "much"}}, [], {"q": {"gpu": -1}}])
def test_past_usage_that_is_none_is_named(usage, tmp_path):
    document = {"rawObjects": {}, "kai": {"usage": usage}}
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as file:
        file.writestr("snapshot.json", json.dumps(document))
    with pytest.raises(InputError, match=r"s.zip: snapshot.json: kai.usage.*: found .*, expected"):
        read_archive(tmp_path / "s.zip", "s.zip")


def test_a_configuration_in_our_own_form_stands_beside():
    own = {"actions": ["allocate"], "plugins": {"gang": {}}}
    settings = SchedulerSettings(configuration=read_configuration(own, "x"), document=own)
    found = document(settings)
    assert found["kai"]["config"] == own
    assert found["config"]["actions"].startswith("allocate, ")
    peer = {"actions": "allocate"}
    assert document(SchedulerSettings(document=peer))["config"]["actions"] == "allocate"


@pytest.mark.parametrize("form", [{"actions": "allocate"}, {"plugins": {"gang": {}}}])
def test_the_usage_databases_password_is_not_dumped(form):
    usage = {"clientType": "prometheus", "connectionString": "https://kai:secret@p:9090/x"}
    own = {**form, "usageDBConfig": usage}
    found = document(SchedulerSettings(configuration=read_configuration(own, "x"), document=own))
    place = found["kai"] if "plugins" in form else found
    assert place["config"]["usageDBConfig"]["connectionString"] == "https://p:9090/x"
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://p:9090/x", "https://p:9090/x"),
        ("https://kai:secret@p:9090/x", "https://p:9090/x"),
        ("https://kai@p/x", "https://p/x"),
        ("https://kai:se@cret@p:9090/x", "https://p:9090/x"),
        ("https://kai:@secret@@p", "https://p"),
        ("https://@secret@p", "https://p"),
        ("https://kai:se/cr@et@p", "http://left-out"),
        ("https://kai:7/secret@p", "https://p"),
        ("https://kai:se?cr#et@p", "http://left-out"),
        ("https://kai:s@e/cret@p/x", "https://p/x"),
        ("https://kai:secret@[::1]:9090/x", "https://[::1]:9090/x"),
        ("https://kai:se[cret@p", "http://left-out"),
        ("https://kai:secr\N{ACCOUNT OF}t@p", "http://left-out"),
        ("https:/kai:secret@p", "http://left-out"),
        ("https://kai:secret@", "http://left-out"),
        ("https://kai:secret", "http://left-out"),
        ("kai:secret@p", "http://left-out"),
        ("https://p/tenants/a@b", "https://p/tenants/a@b"),
        ("", ""),
    ],
)
def test_nothing_of_a_password_is_left_in_an_address(address, expected):
    assert address_without_password(address) == expected


def test_a_full_disk_leaves_no_half_written_archive(tmp_path, monkeypatch):
    opened = tempfile.NamedTemporaryFile

    def full(*args, **options):
        file = opened(*args, **options)
        write = file.write

        def half(data):
            write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")

        file.write = half
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert write_archive(GIVEN, SchedulerSettings(dump_folder=str(tmp_path)), "test") == ""
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_room_there_is_no_file(tmp_path):
    assert write_archive(GIVEN, SchedulerSettings(dump_folder=str(tmp_path / "missing")), "test") == ""
