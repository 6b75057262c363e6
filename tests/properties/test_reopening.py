"""The books that a session opens with are those of its snapshot alone, whatever the session before left in them."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

import kai.facts.state.base
from kai.deciding.configuration.profiles import default_profile
from kai.facts.kernels.accounting import reopen_accounts
from kai.intake import Intake, take_snapshot
from tests.properties.test_incremental import decide, picture
from tests.unit.intake.making import NOW, bind_request, group, node, objects, pod, queue

UNBOUNDED = {name: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for name in ("cpu", "memory", "gpu")}
FIXED = [
    *(node(name) for name in ("m", "n")),
    *(queue(name, parent=parent, resources=UNBOUNDED) for name, parent in (("top", ""), ("q", "top"), ("r", "top"))),
]
PROFILE = default_profile()

pods = st.tuples(
    st.sampled_from(("Pending", "Running", "Running", "Succeeded")),
    st.sampled_from(("m", "n", "gone")),
    st.sampled_from(("g", "h", "h", "none")),
    st.sampled_from(("1", "1", "1", "3")),  # CPUs
    st.sampled_from((None, NOW - 10, NOW - 290)),  # told to go
)
groups = st.tuples(st.sampled_from("qr"), st.integers(1, 3), st.sampled_from(("", "train", "build")))
changes = st.fixed_dictionaries(
    {},
    optional={
        **{f"pod {name}": pods for name in "abcdef"},
        "bind request": st.sampled_from(("e", "f", "")),
    },
)
rarer = st.fixed_dictionaries(
    {}, optional={**{f"pod {name}": st.none() for name in "abc"}, **{f"group {name}": groups for name in "gh"}}
)


def made(world):
    """Return the objects of a world, each by what it says."""
    out = []
    for key, said in world.items():
        kind, _, name = key.partition(" ")
        if said is None:
            continue
        if kind == "pod":
            phase, place, owner, cpu, leaving = said
            metadata = {} if leaving is None else {"deletionTimestamp": _stamp(leaving)}
            where = "" if phase == "Pending" else place
            out.append(pod(name, group=owner, phase=phase, node=where, requests={"cpu": cpu}, metadata=metadata))
        elif kind == "group":
            queue_name, least, preemptibility = said
            out.append(group(name, queue=queue_name, minMember=least, priorityClassName=preemptibility))
        elif said:
            out.append(bind_request(said, "n"))
    return out


def _stamp(seconds):
    return f"1970-01-12T13:{46 + int(seconds - NOW) // 60:02d}:{(40 + int(seconds - NOW)) % 60:02d}Z"


class Store:
    """Objects that stay the same ones for as long as they say the same."""

    def __init__(self):
        self._known = {}

    def of(self, world):
        """Return the objects of a world."""
        known = {str(manifest): manifest for manifest in (*FIXED, *made(world))}
        fresh = {text: objects(manifest) for text, manifest in known.items() if text not in self._known}
        self._known = {text: self._known.get(text) or fresh[text] for text in known}
        fields = {}
        for each in self._known.values():
            for name in ("nodes", "queues", "pods", "pod_groups", "bind_requests"):
                fields[name] = (*fields.get(name, ()), *getattr(each, name))
        return type(objects())(**fields)


FIRST = {
    **{f"pod {name}": ("Running", "n", "g", "1", None) for name in "abcd"},
    **{f"pod {name}": ("Pending", "", "h", "1", None) for name in "ef"},
    **{f"group {name}": ("q", 1, "") for name in "gh"},
}


@given(st.lists(changes | changes | changes | rarer, min_size=1, max_size=8), st.sampled_from((0.0, 20.0)))
def test_reopened_books_equal_fresh_ones(rounds, pause):
    intake, store, world, now = Intake(), Store(), dict(FIRST), NOW
    for changed in ({}, *rounds):
        world |= changed
        found = store.of(world)
        kept, fresh = intake.take(found, now), take_snapshot(found, now)
        assert picture(kept) == picture(fresh)
        assert decide(kept, PROFILE) == decide(fresh, PROFILE)
        now += pause


def test_only_a_moved_pod_is_booked_again():
    intake, store, world = Intake(), Store(), dict(FIRST)
    with mock.patch.object(kai.facts.state.base, "reopen_accounts", wraps=reopen_accounts) as reopen:
        for place in ("m", "n"):
            world["pod b"] = ("Running", place, "g", "1", None)
            decide(intake.take(store.of(world), NOW), PROFILE)
        assert [call.args[3].tolist() for call in reopen.call_args_list] == [[1]]


def test_a_pod_follows_its_bind_request_while_it_exists():
    intake, store, world = Intake(), Store(), dict(FIRST)
    for name in ("", "e", "f", ""):
        world["bind request"] = name
        found = store.of(world)
        kept = intake.take(found, NOW)
        assert picture(kept) == picture(take_snapshot(found, NOW))
        decide(kept, PROFILE)
