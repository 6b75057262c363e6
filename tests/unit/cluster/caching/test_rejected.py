"""Objects that cannot be read are told, once, in the log and by a metric."""

from structlog.testing import capture_logs

from kai.cli.running.rolemetrics import ObjectsNotRead
from tests.unit.cluster.caching.test_assume_cache import cache_of, config


def test_an_unreadable_object_is_logged_once_without_its_content():
    cache, _ = cache_of()
    with capture_logs() as said:
        for version, data in ((5, "nonsense"), (5, "nonsense"), (6, "nonsense"), (7, {"a": ["secret"]}), (8, {})):
            cache.see({**config(version=version), "data": data})
        cache.see({})
    assert [(each["event"], each["log_level"], each["resource"], each["at"]) for each in said] == [
        ("object not read", "warning", "configmaps", "configmap team/a: data"),
        ("object not read", "warning", "configmaps", "configmap team/a: data.a"),
        ("object not read", "warning", "configmaps", "metadata.name"),
    ]


def test_the_metric_counts_what_cannot_be_read_now():
    cache, _ = cache_of()

    def shown():
        (family,) = ObjectsNotRead(cache, "kai").collect()
        return [(sample.name, sample.labels, sample.value) for sample in family.samples]

    assert shown() == []
    cache.see({**config(version=5), "data": "nonsense"})
    cache.see({**config("b", version=6, uid="u2"), "data": "nonsense"})
    assert shown() == [("kai_objects_not_read", {"resource": "configmaps"}, 2.0)]
    cache.see(config(version=7))
    assert shown() == [("kai_objects_not_read", {"resource": "configmaps"}, 1.0)]
