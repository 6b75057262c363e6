"""What is carried from cycle to cycle changes nothing: neither the snapshot, nor the books, nor a decision."""

from random import Random
from unittest import mock

import attrs
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from kai.api.kubernetes.dra import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from kai.api.kubernetes.meta import ObjectMeta
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.session import base_of
from kai.facts.model.claim import RawObject
from kai.framework.decisions import Recorder
from kai.intake import Intake, take_snapshot
from tests.generate.draft import NIC_DRIVER
from tests.properties.deltas import changed
from tests.properties.test_determinism import AT, EVERYTHING, objects_of

ROUNDS = 5
AHEAD = 0.7
"""How often some objects are read before the next cycle, be they known, of that cycle, or soon gone again."""
FORGETTING = st.sampled_from((1 << 10, -(1 << 30)))
"""How many keys of groups are kept: none is forgotten here, or each at once when no object has it any more."""
UNTOLD = {"versions"}
NUMBERS = {"tree"}
"""Columns of numbers that only stand for something, in the order in which it was seen first."""


RULES = tuple(
    DeviceTaintRule(
        metadata=ObjectMeta(name=f"rule-{at}"),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=DeviceTaint(key="sick", effect=effect)),
    )
    for at, (selector, effect) in enumerate(
        ((DeviceTaintSelector(driver=NIC_DRIVER), "NoSchedule"), (DeviceTaintSelector(), "None"), (None, "NoExecute"))
    )
)
"""Rules that taint devices: those of one driver, all without an effect, and none."""


def plain(value):
    """Return a value without arrays and structs, for comparison bit by bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields if name not in NUMBERS}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, RawObject):  # is itself only, so that plugins can keep what they read of it
        return value.key, plain(dict(value.labels)), plain(dict(value.annotations)), plain(dict(value.content))
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def picture(snapshot):
    """Return everything that a snapshot says, and the books in which a session begins."""
    base = base_of(snapshot)
    told = {field.name: plain(getattr(snapshot, field.name)) for field in attrs.fields(type(snapshot))}
    books = {field.name: plain(getattr(base, field.name)) for field in attrs.fields(type(base))}
    books["layout"] = base.layout.sizes
    books["arena"] = plain(base.open(snapshot).arena)
    return {name: value for name, value in told.items() if name not in UNTOLD}, books


def decide(snapshot, using=EVERYTHING):
    sink = Recorder()
    report = run_cycle(snapshot, using, sink)
    reasons = {group: (record.reasons, record.notes, record.pods) for group, record in report.records.items()}
    state = {name: plain(value) for name, value in attrs.asdict(report, recurse=False).items() if name != "records"}
    return sink.statements, state, reasons


@given(st.integers(0, 100), st.integers(0, 10**6), FORGETTING)
@example(31, 59529, 1024)  # a victim on a node that is gone, beside a pod that wants whole GPUs
def test_snapshots_do_not_depend_on_what_came_before(seed, luck, kept_keys):
    chance, whole = Random(luck), attrs.evolve(objects_of(seed, None), device_taint_rules=RULES)
    with mock.patch("kai.intake.membership._KEPT", kept_keys):
        intake = Intake()
        _take_changes(intake, whole, chance)


def _take_changes(intake, whole, chance):
    """Take snapshots of a cluster that changes, and compare each with one that was taken of it alone."""
    objects, now = whole, AT
    past = []
    for _ in range(ROUNDS):
        kept, fresh = intake.take(objects, now), take_snapshot(objects, now)
        seen = picture(fresh)
        assert picture(kept) == seen
        assert decide(kept) == decide(fresh)
        past.append((kept, seen))
        for _ in range(chance.choice((0, 1, 1, 2, 8))):
            objects = changed(objects, whole, chance)
            if chance.random() < AHEAD:
                some = (*objects.pods, *objects.pod_groups, *objects.nodes)
                intake.read_ahead(chance.sample(some, chance.randint(0, len(some))))
        now += chance.choice((0.0, 1.0, 30.0, 600.0))
    for kept, seen in past:  # what came later changed nothing of what older snapshots share with it
        assert picture(kept) == seen
