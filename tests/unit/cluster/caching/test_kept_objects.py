"""Objects and annotations that only this process has, and how long it shows them."""

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import ConfigMap
from tests.unit.cluster.caching.test_assume_cache import KEY, annotated, cache_of, config, listed


def test_a_kept_object_stays_until_real_or_forgotten():
    cache, _ = cache_of()
    kept = structure_as(ConfigMap, config(version=0, uid="", colour="red"))
    cache.keep(KEY, kept)
    cache.overlay(KEY, {"start": "now"})
    cache.forget_all()
    listed(cache, 5)
    assert cache.is_kept(KEY)
    assert (cache.get(KEY).data, cache.get(KEY).metadata.annotations) == ({"colour": "red"}, {"start": "now"})
    cache.see(config(version=6, colour="blue"))
    assert not cache.is_kept(KEY)
    assert (cache.get(KEY).data, cache.get(KEY).metadata.annotations) == ({"colour": "blue"}, {"start": "now"})
    other = ("team", "b")
    cache.keep(other, structure_as(ConfigMap, config("b", version=0, uid="")))
    cache.forget(other)
    assert cache.get(other) is None


def test_kept_annotations_survive_forget_all_until_overlaid_without_keeping():
    cache, _ = cache_of()
    cache.see(annotated(5))
    cache.overlay(KEY, {"group": "g"}, is_kept=True)
    cache.forget_all()
    assert cache.get(KEY).metadata.annotations == {"group": "g"}
    cache.overlay(KEY, {"group": "g"})
    cache.forget_all()
    assert cache.get(KEY).metadata.annotations == {}
