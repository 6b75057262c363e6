import attrs
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import ConfigMap
from kai.cluster.caching.assume_cache import AssumeCache, version_of
from kai.cluster.port import Change, Index

KEY = ("team", "a")
BY_COLOUR: Index[ConfigMap] = Index(ConfigMap, "colour", lambda each: (each.data.get("colour", ""),))


def config(name="a", *, version, uid="u1", **data):
    return {"metadata": {"name": name, "namespace": "team", "uid": uid, "resourceVersion": str(version)}, "data": data}


def cache_of(cls=ConfigMap):
    changes = []
    return AssumeCache(cls, lambda _, change: changes.append(change)), changes


def listed(cache, version, *manifests):
    cache.begin_list(version)
    for manifest in manifests:
        cache.see_listed(manifest)
    cache.end_list(version)


# --- Overlaying ------------------------------------------------------------------------------------------------------


def annotated(version, **annotations):
    manifest = config(version=version)
    manifest["metadata"]["annotations"] = annotations
    return manifest


def test_an_overlay_is_shown_until_the_object_has_it():
    cache, changes = cache_of()
    cache.see(config(version=5, colour="red"))
    cache.overlay(KEY, {"group": "g"})
    assert changes[-1].after.metadata.annotations == {"group": "g"}
    cache.see(config(version=6, colour="blue"))
    found = cache.get(KEY)
    assert (found.data, found.metadata.annotations) == ({"colour": "blue"}, {"group": "g"})
    assert cache.is_overlaid(KEY)
    cache.see(annotated(7, group="other"))
    assert cache.get(KEY).metadata.annotations == {"group": "other"}
    assert not cache.is_overlaid(KEY)


def test_an_overlay_ends_with_its_object():
    cache, _ = cache_of()
    cache.see(config(version=5))
    cache.overlay(KEY, {"group": "g"})
    cache.see(config(version=9, uid="u2"))
    assert cache.get(KEY).metadata.annotations == {}
    cache.overlay(KEY, {"group": "g"})
    cache.remove_key(KEY, "u2")
    assert not cache.is_overlaid(KEY)
    cache.overlay(KEY, {"group": "g"})
    assert cache.get(KEY) is None


def test_an_overlay_on_an_assumed_object_survives_its_arrival():
    cache, changes = cache_of()
    cache.assume(KEY, structure_as(ConfigMap, config(version=0, uid="")), lambda found: found is not None)
    cache.overlay(KEY, {"group": "g"})
    assert changes[-1].after.metadata.annotations == {"group": "g"}
    cache.see(config(version=5, colour="red"))
    found = cache.get(KEY)
    assert (found.metadata.uid, found.data, found.metadata.annotations) == ("u1", {"colour": "red"}, {"group": "g"})
    cache.see(annotated(7, group="other"))
    assert not cache.is_overlaid(KEY)


def test_an_overlay_on_an_assumed_object_ends_with_it():
    cache, _ = cache_of()
    cache.assume(KEY, structure_as(ConfigMap, config(version=0, uid="")), lambda found: found is not None)
    cache.overlay(KEY, {"group": "g"})
    cache.forget(KEY)
    assert cache.get(KEY) is None
    assert not cache.is_overlaid(KEY)
    cache.see(config(version=5))
    assert cache.get(KEY).metadata.annotations == {}


def test_an_overlay_replaces_another_and_an_empty_removes_it():
    cache, _ = cache_of()
    cache.see(annotated(5))
    cache.overlay(KEY, {"start": "now"})
    cache.overlay(KEY, {"start": "later"})
    assert cache.get(KEY).metadata.annotations == {"start": "later"}
    cache.overlay(KEY, {})
    assert cache.get(KEY).metadata.annotations == {}
    assert not cache.is_overlaid(KEY)


def test_an_equal_overlay_changes_nothing_and_forgetting_removes_it():
    cache, changes = cache_of()
    cache.see(annotated(5, mine="1"))
    cache.overlay(KEY, {"group": "g"})
    cache.overlay(KEY, {"group": "g"})
    assert len(changes) == 2
    cache.assume(KEY, cache.get(KEY), lambda _: False)
    cache.forget_all()
    assert cache.get(KEY).metadata.annotations == {"mine": "1"}
    assert not cache.is_overlaid(KEY)


# --- Versions ------------------------------------------------------------------------------------------------------


def test_a_version_is_a_number_or_newer_than_anything():
    assert [version_of(text) for text in ("12", "", None, 12, "1x", "٣", "9" * 30)] == [12, -1, -1, -1, -1, -1, -1]


def test_what_was_seen_is_shown():
    cache, changes = cache_of()
    cache.see(config(version=5, colour="red"))
    found = cache.get(KEY)
    assert found.data == {"colour": "red"}
    assert changes == [Change(None, found)]
    assert cache.all() == (found,)


def test_the_same_version_again_changes_nothing():
    cache, changes = cache_of()
    cache.see(config(version=5))
    found, everything = cache.get(KEY), cache.all()
    cache.see(config(version=5))
    listed(cache, 9, config(version=5))
    assert cache.get(KEY) is found
    assert cache.all() is everything
    assert len(changes) == 1


def test_an_older_version_is_passed_over():
    cache, _ = cache_of()
    cache.see(config(version=5, colour="red"))
    cache.see(config(version=4, colour="blue"))
    assert cache.get(KEY).data == {"colour": "red"}


def test_a_late_event_does_not_restore_a_deleted_object():
    cache, _ = cache_of()
    cache.see(config(version=5))
    cache.remove(config(version=7))
    cache.see(config(version=6))
    assert cache.get(KEY) is None


def test_a_deletion_is_remembered_while_a_list_is_read():
    cache, _ = cache_of()
    cache.see(config(version=5))
    cache.begin_list(6)
    cache.remove(config(version=7))
    cache.fade()
    cache.fade()
    cache.see(config(version=6))
    cache.end_list(6)
    assert cache.get(KEY) is None


def test_an_earlier_namesakes_deletion_leaves_the_new_object():
    cache, _ = cache_of()
    cache.see(config(version=9, uid="u2"))
    cache.remove(config(version=7, uid="u1"))
    assert cache.get(KEY).metadata.uid == "u2"


def test_a_recreated_object_is_a_deletion_and_an_addition():
    cache, changes = cache_of()
    cache.see(config(version=5, uid="u1"))
    first = cache.get(KEY)
    cache.see(config(version=9, uid="u2"))
    assert changes[1:] == [Change(first, None), Change(None, cache.get(KEY))]


def test_an_object_that_left_a_selection_may_come_back():
    cache, _ = cache_of()
    cache.see(config(version=5))
    cache.remove(config(version=6))
    cache.see(config(version=8))
    assert cache.get(KEY) is not None


# --- Lists ---------------------------------------------------------------------------------------------------------


def test_what_a_list_does_not_bring_is_gone():
    cache, _ = cache_of()
    listed(cache, 10, config("a", version=5), config("b", version=6, uid="u2"))
    listed(cache, 20, config("b", version=6, uid="u2"))
    assert [each.metadata.name for each in cache.all()] == ["b"]


def test_what_was_made_after_a_list_outlives_it():
    cache, _ = cache_of()
    cache.begin_list(10)
    cache.see(config("a", version=5))
    cache.see(config("new", version=12, uid="u9"))
    cache.end_list(10)
    listed(cache, 13, config("new", version=12, uid="u9"))
    assert [each.metadata.name for each in cache.all()] == ["new"]


def test_a_write_answered_during_a_list_survives_it():
    cache, _ = cache_of()
    cache.see(config("answered", version=12, uid="u9"))
    cache.newest = 10  # as if it had come between the pages of a list that was made at 10
    listed(cache, 10)
    assert len(cache) == 1


def test_events_during_a_list_are_newer_than_it():
    cache, changes = cache_of()
    listed(cache, 10, config("a", version=5, colour="early"), config("b", version=6, uid="u2"))
    asked = cache.ask()
    cache.see(config("a", version=12, colour="late"))
    cache.begin_list(11, asked)
    for each in (config("a", version=5, colour="early"), config("b", version=6, uid="u2")):
        cache.see_listed(each)
    cache.end_list(11)
    assert versions(cache) == {"a": "12", "b": "6"}
    assert [change.after.data for change in changes if change.after.metadata.name == "a"][-1] == {"colour": "late"}
    assert cache.newest == 12


def test_a_list_older_than_what_is_known_replaces_everything():
    cache, _ = cache_of()
    listed(cache, 50, config("a", version=40, colour="late"), config("b", version=45, uid="u2"))
    cache.remove(config("b", version=48, uid="u2"))
    listed(cache, 30, config("a", version=20, colour="early"), config("b", version=25, uid="u2"))
    assert versions(cache) == {"a": "20", "b": "25"}
    cache.see(config("a", version=31, colour="again"))
    assert cache.get(KEY).data == {"colour": "again"}


def versions(cache):
    return {each.metadata.name: each.metadata.resource_version for each in cache.all()}


def test_a_list_from_a_backup_replaces_the_cache():
    """A backup was put back, and versions moved on, as etcd's own tool does so that watchers list again."""
    cache, _ = cache_of()
    listed(cache, 50, config("a", version=40), config("b", version=45, uid="u2"), config("c", version=30, uid="u3"))
    cache.remove(config("b", version=48, uid="u2"))
    cache.remove_key(("team", "c"), "u3")  # ended in answer to a write, at no version
    earlier = config("c", version=25, uid="u3"), config("a", version=20), config("b", version=21, uid="u2")
    listed(cache, 1000, *earlier)
    assert versions(cache) == {"a": "20", "b": "21", "c": "25"}
    cache.see(config("b", version=1001, uid="u2"))
    assert versions(cache)["b"] == "1001"


def test_a_list_showing_a_deleted_object_restores_it():
    cache, _ = cache_of()
    cache.see(config(version=5))
    cache.remove(config(version=8))
    listed(cache, 1000, config(version=5))
    assert versions(cache) == {"a": "5"}


def test_a_list_older_than_a_change_reverts_nothing():
    cache, _ = cache_of()
    cache.begin_list(10)
    cache.remove_key(("team", "gone"), "u2")
    cache.remove(config("late", version=12, uid="u3"))
    cache.see(config("a", version=12))
    for each in (config("a", version=5), config("gone", version=6, uid="u2"), config("late", version=7, uid="u3")):
        cache.see_listed(each)
    cache.end_list(10)
    assert versions(cache) == {"a": "12"}


def coloured(cache, colour):
    """Assume a colour of the object that is there, until it has that colour."""
    shown = attrs.evolve(cache.get(KEY), data={"colour": colour})
    cache.assume(KEY, shown, lambda now: now is not None and now.data == shown.data)


def test_a_confirmed_write_missing_in_a_list_is_lost():
    """A backup was put back before any news of the write came; it may be as new as what was known."""
    cache, _ = cache_of()
    listed(cache, 10, config(version=5, colour="old"))
    coloured(cache, "new")
    cache.confirm(KEY)
    listed(cache, 10, config(version=5, colour="old"))
    assert cache.get(KEY).data == {"colour": "old"}
    assert not cache.is_assumed(KEY)


def test_a_list_does_not_judge_later_writes():
    cache, _ = cache_of()
    listed(cache, 10, config(version=5, colour="old"))
    coloured(cache, "new")
    listed(cache, 10, config(version=5, colour="old"))
    assert cache.get(KEY).data == {"colour": "new"}
    asked = cache.ask()
    cache.confirm(KEY)
    cache.begin_list(10, asked)
    cache.see_listed(config(version=5, colour="old"))
    cache.end_list(10)
    assert cache.get(KEY).data == {"colour": "new"}


def test_a_list_does_not_refute_later_assumptions():
    cache, _ = cache_of()
    listed(cache, 10, config(version=5, colour="old"))
    coloured(cache, "new")
    cache.confirm(KEY)
    asked = cache.ask()
    coloured(cache, "newer")
    cache.begin_list(10, asked)
    cache.see_listed(config(version=5, colour="old"))
    cache.end_list(10)
    assert cache.get(KEY).data == {"colour": "newer"}


def test_an_object_returning_to_the_selection_indicates_no_backup():
    cache, _ = cache_of()
    cache.see(config(version=5))
    cache.see(config("b", version=4, uid="u2"))
    cache.remove(config(version=6))
    listed(cache, 10, config(version=8))
    assert versions(cache) == {"a": "8"}


def test_a_list_after_a_deletions_answer_may_restore_objects():
    """The answer tells no version of the end. A list is no older than its request, so a backup was put back since."""
    cache, _ = cache_of()
    cache.see(config("b", version=4, uid="u2"))
    cache.remove_key(("team", "gone"), "u3")
    asked = cache.ask()
    cache.remove_key(("team", "going"), "u4")
    cache.begin_list(10, asked)
    cache.see_listed(config("going", version=6, uid="u4"))
    cache.end_list(10)
    assert versions(cache) == {}
    cache.see(config("b", version=11, uid="u2"))
    listed(cache, 20, config("gone", version=7, uid="u3"))
    assert versions(cache) == {"gone": "7"}


def test_a_kind_no_longer_served_has_no_objects():
    cache, _ = cache_of()
    cache.see(config(version=5))
    cache.clear()
    assert cache.all() == ()
    cache.see(config(version=6))
    assert len(cache) == 1


# --- What cannot be read -------------------------------------------------------------------------------------------


def test_an_unreadable_object_is_rejected_with_its_reason():
    cache, changes = cache_of()
    cache.see({**config(version=5), "data": "nonsense"})
    (rejected,) = cache.rejected
    assert rejected.key == KEY
    assert rejected.message == 'configmap team/a: data: found "nonsense", expected an object of strings'
    assert not changes


def test_an_object_that_turns_unreadable_stays_as_it_was():
    cache, _ = cache_of()
    cache.see(config(version=5, colour="red"))
    cache.see({**config(version=6), "data": 7})
    assert cache.get(KEY).data == {"colour": "red"}
    assert len(cache.rejected) == 1
    cache.see(config(version=7, colour="blue"))
    assert cache.get(KEY).data == {"colour": "blue"}
    assert cache.rejected == ()


def test_an_unreadable_namesake_does_not_show_its_predecessor():
    cache, _ = cache_of()
    cache.see(config(version=5, uid="u1"))
    cache.see({**config(version=6, uid="u2"), "data": 7})
    assert cache.get(KEY) is None


def test_something_without_a_name_is_told_and_passed_over():
    cache, _ = cache_of()
    for nonsense in ({}, {"metadata": None}, {"metadata": {"name": 7}}, {"metadata": {"name": ""}}, [], None):
        cache.see(nonsense)
        cache.remove(nonsense)
    assert len(cache) == 0
    assert len(cache.rejected) == 1


# --- Assuming ------------------------------------------------------------------------------------------------------


def recoloured(obj, colour):
    return attrs.evolve(obj, data={"colour": colour})


def is_red(obj):
    return obj is not None and obj.data.get("colour") == "red"


def test_what_is_assumed_is_shown_until_it_is_true():
    cache, _ = cache_of()
    cache.see(config(version=5, colour="blue"))
    cache.assume(KEY, recoloured(cache.get(KEY), "red"), is_red)
    cache.see(config(version=6, colour="green"))
    assert cache.get(KEY).data == {"colour": "red"}
    assert cache.actual(KEY).data == {"colour": "green"}
    cache.see(config(version=7, colour="red"))
    assert not cache.is_assumed(KEY)
    assert cache.get(KEY).metadata.resource_version == "7"


def test_what_is_true_already_is_not_assumed():
    cache, changes = cache_of()
    cache.see(config(version=5, colour="red"))
    cache.assume(KEY, recoloured(cache.get(KEY), "red"), is_red)
    assert not cache.is_assumed(KEY)
    assert len(changes) == 1


def test_to_forget_shows_what_is_there():
    cache, _ = cache_of()
    cache.see(config(version=5, colour="blue"))
    cache.assume(KEY, recoloured(cache.get(KEY), "red"), is_red)
    cache.assume(("team", "b"), ConfigMap(), lambda now: now is not None)
    assert len(cache) == 2
    cache.forget_all()
    assert [each.data for each in cache.all()] == [{"colour": "blue"}]


def is_big(obj):
    return obj is not None and obj.data.get("size") == "big"


def painted_and_enlarged(*, is_painted):
    """Assume a colour, which is written perhaps, and over that a size."""
    cache, _ = cache_of()
    cache.see(config(version=5, colour="blue"))
    cache.assume(KEY, recoloured(cache.get(KEY), "red"), is_red)
    if is_painted:
        cache.confirm(KEY)
    cache.assume(KEY, attrs.evolve(cache.get(KEY), data={"colour": "red", "size": "big"}), is_big)
    return cache


def test_forgetting_a_failed_write_shows_the_one_before():
    """A pod that was bound and is to be evicted has its node still, should the eviction be refused."""
    cache = painted_and_enlarged(is_painted=True)
    cache.forget(KEY)
    assert cache.get(KEY).data == {"colour": "red"}
    cache.see(config(version=6, colour="green"))
    assert cache.get(KEY).data == {"colour": "red"}
    cache.see(config(version=7, colour="red"))
    assert not cache.is_assumed(KEY)


def test_forgetting_a_failed_write_shows_no_other_write():
    cache = painted_and_enlarged(is_painted=False)
    cache.forget(KEY)
    assert cache.get(KEY).data == {"colour": "blue"}
    cache = painted_and_enlarged(is_painted=True)
    cache.see(config(version=6, colour="red", age="1"))
    cache.forget(KEY)
    assert cache.get(KEY).data == {"colour": "red", "age": "1"}
    assert not cache.is_assumed(KEY)


def test_to_forget_everything_leaves_what_the_server_confirmed():
    """The binder of a new leader may have bound a pod before the scheduler beside it begins to decide."""
    cache = painted_and_enlarged(is_painted=True)
    cache.forget_all()
    assert cache.get(KEY).data == {"colour": "red"}
    cache.forget_all()
    assert cache.get(KEY).data == {"colour": "red"}
    listed(cache, 5, config(version=5, colour="blue"))
    assert cache.get(KEY).data == {"colour": "blue"}
    cache = painted_and_enlarged(is_painted=False)
    cache.forget_all()
    assert cache.get(KEY).data == {"colour": "blue"}
    assert not cache.is_assumed(KEY)


def test_forgetting_everything_drops_a_confirmed_write():
    cache = painted_and_enlarged(is_painted=True)
    cache.overlay(KEY, {"group": "g"})
    cache.forget_all()
    listed(cache, 5, config(version=5, colour="blue"))
    assert (cache.get(KEY).data, cache.get(KEY).metadata.annotations) == ({"colour": "blue"}, {})


def test_a_list_refutes_a_write_beneath_another():
    cache = painted_and_enlarged(is_painted=True)
    listed(cache, 5, config(version=5, colour="blue"))
    assert cache.get(KEY).data == {"colour": "red", "size": "big"}
    cache.forget(KEY)
    assert cache.get(KEY).data == {"colour": "blue"}


def test_an_assumed_creation_survives_lists_without_it():
    cache, _ = cache_of()
    cache.assume(KEY, ConfigMap(), lambda now: now is not None)
    listed(cache, 10)
    assert cache.get(KEY) == ConfigMap()
    cache.see(config(version=11))
    assert cache.get(KEY).metadata.uid == "u1"


# --- Finding -------------------------------------------------------------------------------------------------------


def test_an_index_follows_changes():
    cache, _ = cache_of()
    cache.see(config("b", version=1, uid="u1", colour="red"))
    cache.see(config("a", version=2, uid="u2", colour="red"))
    assert [each.metadata.name for each in cache.find(BY_COLOUR, "red")] == ["a", "b"]
    assert cache.find(BY_COLOUR, "red") is cache.find(BY_COLOUR, "red")
    cache.see(config("b", version=3, uid="u1", colour="blue"))
    cache.remove(config("a", version=4, uid="u2"))
    assert cache.find(BY_COLOUR, "red") == ()
    assert [each.metadata.name for each in cache.find(BY_COLOUR, "blue")] == ["b"]


# --- Any order -----------------------------------------------------------------------------------------------------

HISTORY = [
    ("see", config("a", version=1, uid="u1")),
    ("see", config("b", version=2, uid="u2")),
    ("see", config("a", version=3, uid="u1", colour="red")),
    ("remove", config("a", version=4, uid="u1")),
    ("see", config("a", version=5, uid="u3")),
    ("see", config("b", version=6, uid="u2", colour="blue")),
    ("remove", config("b", version=7, uid="u2")),
    ("see", config("c", version=8, uid="u4")),
]
END = {("a", "u3", "5"), ("c", "u4", "8")}


def shown(cache):
    return {(each.metadata.name, each.metadata.uid, each.metadata.resource_version) for each in cache.all()}


@given(st.permutations(HISTORY + HISTORY[::2]))
def test_events_in_any_order_reach_the_same_end(history):
    cache, _ = cache_of()
    for name, manifest in history:
        getattr(cache, name)(manifest)
    assert shown(cache) == END


@given(st.lists(st.sampled_from(HISTORY)))
def test_a_list_puts_right_whatever_was_missed(history):
    cache, changes = cache_of()
    for name, manifest in history:
        getattr(cache, name)(manifest)
    listed(cache, 8, HISTORY[4][1], HISTORY[7][1])
    assert shown(cache) == END
    known = {}
    for change in changes:
        known[change.present.metadata.uid] = change.after
    assert {each.metadata.uid for each in known.values() if each is not None} == {"u3", "u4"}


# --- Listings ------------------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("see", "remove", "assume", "forget", "list"))))


@given(STEPS)
def test_a_listing_names_arrivals_and_departures_since_the_last(steps):
    cache, _ = cache_of()
    before, given_out = cache.listing(), []
    for version, (name, what) in enumerate(steps, start=1):
        key = ("team", name)
        if what == "see":
            cache.see(config(name, version=version, uid=name))
        elif what == "remove":
            cache.remove_key(key, name, version)
        elif what == "assume" and (known := cache.get(key)):
            cache.assume(key, attrs.evolve(known, data={"assumed": "yes"}), lambda _: False)
        elif what == "forget":
            cache.forget(key)
        elif what == "list":
            now = cache.listing()
            if now is not before:
                assert now.before is before.mark
                kept = [each for each in before if not any(each is gone for gone in now.gone)]
                assert {id(each) for each in (*kept, *now.come)} == {id(each) for each in now}
                assert len(kept) + len(now.come) == len(now)
                before = now
                given_out.append((now, sorted(map(id, now))))
                assert sorted(map(id, now)) == sorted(map(id, cache.all()))
    assert all(sorted(map(id, listing)) == objects for listing, objects in given_out)
