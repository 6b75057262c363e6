"""A publisher whose writes reach a server at once, with one group of one pod to tell of."""

import attrs

from kai.api.plans import Reason, Refusal
from kai.api.scheduling.pod_group import UnschedulableReason
from kai.roles.scheduler.effects import Send
from kai.roles.scheduler.publishing.explanations import GroupAccount, Overall, PodAccount, Waiting
from kai.roles.scheduler.publishing.publisher import CycleOver, Publisher, Written
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import WALL, World

STAMPS = {"kai.scheduler/last-start-timestamp": None}
EVICTED = {"kai.scheduler/last-eviction-timestamp": "2026-01-01T12:00:00Z"}
WHY = Waiting(message="because", reasons=(UnschedulableReason(reason="OverLimit", message="because"),))


class Stage:
    def __init__(self, *manifests):
        base = (making.queue("q"), making.group("g"), making.pod("p", group="g"))
        self.world = World(*base, *manifests)
        self.begin()
        self.time = 0.0

    def begin(self):
        self.publisher = Publisher(SchedulerSettings(), self.world, lambda: WALL + self.time)

    def tell(self, *accounts, settled=(), shares=None):
        told = Overall(groups=accounts, settled=frozenset(settled), fair_shares=shares or {})
        return self.step(CycleOver(told))

    def step(self, event):
        effects = self.publisher.step(event, self.time)
        for effect in effects:
            if isinstance(effect, Send):
                reply = self.world.perform(effect.request)
                if effect.topic:
                    self.publisher.step(Written(effect.topic, effect.request, reply), self.time)
        self.world.sync()
        return [effect.request for effect in effects if isinstance(effect, Send)]

    @property
    def group(self):
        return self.world.server.get("PodGroup", "g", "default")

    def account(self, message="because", **changes):
        pod = PodAccount(name="p", namespace="default", uid="uid-p", message=message)
        base = GroupAccount(
            name="g",
            namespace="default",
            uid="uid-g",
            stamps=STAMPS,
            unschedulable=message,
            condition=attrs.evolve(WHY, message=message),
            pods=(pod,),
        )
        return attrs.evolve(base, **changes)


def lost(stage, account, wanted):
    """Tell an account while the server refuses a kind of write; no later cycle gives another."""
    effects = stage.publisher.step(CycleOver(Overall(groups=(account,))), stage.time)
    for each in (each for each in effects if isinstance(each, Send)):
        is_lost = isinstance(each.request, wanted)
        reply = Refusal(reason=Reason.UNAVAILABLE) if is_lost else stage.world.perform(each.request)
        stage.publisher.step(Written(each.topic, each.request, reply), stage.time)
    stage.world.sync()
