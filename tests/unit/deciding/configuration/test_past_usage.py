"""Past usage is configured by the peer's keys, with its defaults."""

import attrs
import pytest

from kai.basics.errors import ConfigError
from kai.deciding.configuration.past_usage import UsageSettings, WindowType, read_usage
from kai.deciding.configuration.profile_reading import read_configuration

ADDRESS = "http://prometheus:9090"
LEAST = {"clientType": "prometheus", "connectionString": ADDRESS}


def read(params=None, **more):
    notes = []
    value = {**LEAST, **more, **({} if params is None else {"usageParams": params})}
    return read_usage(value, "usageDBConfig", notes), notes


def test_what_is_left_out_has_the_peers_defaults():
    settings, notes = read()
    assert settings == UsageSettings(address=ADDRESS)
    assert notes == []
    assert (settings.window, settings.window_text, settings.window_seconds) == (WindowType.SLIDING, "1w", 604_800.0)
    assert (settings.fetch_seconds, settings.staleness_seconds, settings.wait_seconds) == (60.0, 300.0, 60.0)
    assert (settings.timeout_seconds, settings.resolution_seconds, settings.half_life_seconds) == (10.0, 60.0, 0.0)
    assert settings.allocation["gpu"] == "kai_queue_allocated_gpus"
    assert settings.capacity["gpu"] == 'sum(max by (node) (kube_node_status_capacity{resource="nvidia_com_gpu"}))'


def test_everything_can_be_said():
    settings, notes = read(
        {
            "halfLifePeriod": "10m0s",
            "windowSize": "1d12h",
            "windowType": "tumbling",
            "tumblingWindowStartTime": "2026-01-01T00:00:00Z",
            "fetchInterval": "30s",
            "stalenessPeriod": "2m",
            "waitTimeout": "0s",
            "extraParams": {
                "usageQueryTimeout": "3s",
                "queryResolution": "30s",
                "gpuAllocationMetric": "mine",
                "cpuCapacityMetric": "sum(there)",
                "anything": "else",
            },
        },
        connectionString=ADDRESS + "/select/0/prometheus",
    )
    assert notes == []
    assert settings == attrs.evolve(
        UsageSettings(address=ADDRESS + "/select/0/prometheus"),
        half_life_seconds=600.0,
        window=WindowType.TUMBLING,
        window_text="1d12h",
        window_seconds=129_600.0,
        start=1_767_225_600.0,
        fetch_seconds=30.0,
        staleness_seconds=120.0,
        wait_seconds=0.0,
        timeout_seconds=3.0,
        resolution_seconds=30.0,
        allocation={**UsageSettings().allocation, "gpu": "mine"},
        capacity={**UsageSettings().capacity, "cpu": "sum(there)"},
    )


def test_an_address_may_stand_in_the_environment():
    settings, _ = read(connectionString="", connectionStringEnvVar="PROMETHEUS")
    assert (settings.address, settings.address_variable) == ("", "PROMETHEUS")


def test_nothing_is_read_where_nothing_is_said():
    assert read_usage(None, "usageDBConfig", []) is None
    assert read_configuration({"actions": "allocate"}, "c.yaml").usage is None


def test_a_fake_usage_client_is_noted_and_not_used():
    notes = []
    assert read_usage({"clientType": "fake", "connectionString": "x"}, "u", notes) is None
    assert notes == ["u.clientType: found 'fake', a stand-in for tests, expected prometheus; nothing is read"]


def test_a_staleness_shorter_than_the_interval_is_the_interval():
    settings, notes = read({"fetchInterval": "10m", "stalenessPeriod": "1m"})
    assert settings.staleness_seconds == 600.0
    assert "stalenessPeriod: found less than fetchInterval" in notes[0]


@pytest.mark.parametrize("text", ["soon", "-1s", "0s", "500us"])
def test_an_unusable_duration_falls_back_to_its_default(text):
    settings, notes = read({"extraParams": {"queryResolution": text}})
    assert settings.resolution_seconds == 60.0
    assert notes[0].endswith("used 1m0s")


def test_a_negative_half_life_is_none():
    assert read({"halfLifePeriod": "-1s"})[0].half_life_seconds == 0.0


@pytest.mark.parametrize(
    ("more", "params", "message"),
    [
        ({"clientType": "influx"}, None, "u.clientType: found 'influx', expected one of prometheus, sqlite, postgr"),
        ({"clientType": None}, None, "u.clientType: found '', expected one of prometheus, sqlite"),
        ({"connectionString": ""}, None, "u: found neither, expected one of connectionString"),
        ({"connectionStringEnvVar": "X"}, None, "u: found both, expected one of connectionString"),
        ({"connectionString": "prometheus:9090"}, None, "u.connectionString: found 'prometheus:9090', expected an add"),
        ({"connectionString": 5}, None, "u.connectionString: found 5, expected text"),
        ({"clienttype": "prometheus"}, None, "u: found key 'clienttype', expected one of clientType"),
        ({}, [], r"u.usageParams: found \[\], expected a mapping"),
        ({}, {"window": "1w"}, "u.usageParams: found key 'window', expected one of halfLifePeriod"),
        ({}, {"windowSize": "1.5h"}, "u.usageParams.windowSize: found '1.5h', expected a duration as Prometheus"),
        ({}, {"windowSize": "0s"}, "u.usageParams.windowSize: found '0s', expected a duration as Prometheus"),
        ({}, {"windowType": "hopping"}, "u.usageParams.windowType: found 'hopping', expected one of sliding, tumbling"),
        ({}, {"windowType": "tumbling"}, "u.usageParams.tumblingWindowStartTime: found nothing, expected a time"),
        ({}, {"windowType": "tumbling", "tumblingWindowStartTime": "2026-01-01"}, "StartTime: found '2026-01-01', exp"),
        ({}, {"windowType": "cron", "cronString": "noon"}, "u.usageParams.cronString: found 1 fields, expected five"),
        ({}, {"windowType": "cron"}, "u.usageParams.cronString: found 0 fields, expected five"),
        ({}, {"fetchInterval": "0s"}, "u.usageParams.fetchInterval: found '0s', expected more than nothing"),
        ({}, {"fetchInterval": "often"}, "u.usageParams.fetchInterval: found 'often', expected a duration"),
        (
            {},
            {"extraParams": {"x": 1}},
            "u.usageParams.extraParams: found {x: 1}, expected a mapping of text to text",
        ),
    ],
)
def test_what_cannot_be_used_stops_the_start(more, params, message):
    value = {**LEAST, **more, **({} if params is None else {"usageParams": params})}
    with pytest.raises(ConfigError, match=message):
        read_usage(value, "u", [])


@pytest.mark.parametrize("document", [{"usageDBConfig": LEAST}, {"actions": ["allocate"], "usageDBConfig": LEAST}])
def test_both_forms_of_a_configuration_may_ask_for_it(document):
    assert read_configuration(document, "c.yaml").usage == UsageSettings(address=ADDRESS)


def recorded(path="/var/lib/kai/history.db", **extra):
    params = {"windowSize": "1w", "extraParams": extra}
    notes = []
    value = {"clientType": "sqlite", "connectionString": path, "usageParams": params}
    return read_usage(value, "usageDBConfig", notes), notes


def test_a_sqlite_database_keeps_ninety_days_by_default():
    settings, notes = recorded()
    assert (settings.client, settings.address) == ("sqlite", "/var/lib/kai/history.db")
    assert (settings.retention_seconds, notes) == (90 * 86_400.0, [])
    assert recorded(retention="1y")[0].retention_seconds == 365 * 86_400.0


def test_a_retention_below_the_window_is_raised_to_it():
    settings, notes = recorded(retention="1d")
    assert settings.retention_seconds == 7 * 86_400.0
    assert notes == [
        "usageDBConfig.usageParams.extraParams.retention: found less than windowSize, expected at least that; used that"
    ]


@pytest.mark.parametrize(
    ("path", "extra", "message"),
    [
        ("history.db", {}, "connectionString: found 'history.db', expected a file such as \"/var/lib/kai/history.db\""),
        ("/var/lib/kai/", {}, "connectionString: found '/var/lib/kai/', expected a file"),
        ("/h.db", {"queryResolution": "1m"}, "extraParams: found key 'queryResolution', expected retention"),
        ("/h.db", {"retention": "forever"}, "extraParams.retention: found 'forever', expected a duration"),
    ],
)
def test_an_impossible_sqlite_database_is_refused(path, extra, message):
    with pytest.raises(ConfigError, match=message):
        recorded(path, **extra)


def on_server(address, **extra):
    notes = []
    value = {"clientType": "postgresql", "connectionString": address, "usageParams": {"extraParams": extra}}
    return read_usage(value, "u", notes), notes


def test_a_server_has_the_settings_of_a_file():
    settings, notes = on_server("postgresql://kai@db/kai", retention="1y")
    assert (settings.client, settings.is_recorded, settings.retention_seconds) == ("postgresql", True, 365 * 86_400.0)
    assert notes == []


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://kai:secret@db/kai", r"u.connectionString: found a password, expected it in \$PGPASSWORD"),
        ("postgresql://kai@db/kai?password=secret", "u.connectionString: found a password"),
        ("mysql://db/kai", "u.connectionString: found another scheme, expected postgresql://USER@HOST"),
        ("postgresql://secret", "u.connectionString: found no database"),
        ("/var/lib/kai/history.db", "u.connectionString: found another scheme"),
    ],
)
def test_a_wrong_address_is_refused_without_its_text(address, message):
    with pytest.raises(ConfigError, match=message) as refused:
        on_server(address)
    assert "secret" not in str(refused.value)
