"""What metrics say of who decides: of a process that leads, of one that waits for the lease, and of a shadow."""

import anyio
import attrs
import pytest
from prometheus_client import CollectorRegistry

from kai.cluster.process.exposition import exposition
from kai.intake import IntakeSettings
from kai.roles.scheduler.making import make_scheduler
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.settings import SchedulerSettings
from tests.doubles import virtual_time
from tests.doubles.cpu import InlineCpu
from tests.unit.roles.scheduler.test_service import TERM, cluster_of

OF_ONE_CYCLE = ("kai_pending_pods{", "kai_queue_fair_share_gpu{", "kai_queue_gpu_usage{", "kai_namespace_")


@attrs.define(eq=False)
class Lease:
    """A lease that is there for the taking while ``is_ours``."""

    is_ours: bool
    has_rivals: bool = False

    def holds(self, term):
        return self.is_ours and term == TERM

    def outgrow(self, epoch):
        pass

    async def begun(self):
        while not self.is_ours:  # noqa: ASYNC110 - a test takes and gives it
            await anyio.sleep(0.1)
        return TERM

    async def ended(self, term):
        while self.holds(term):  # noqa: ASYNC110 - a test takes and gives it
            await anyio.sleep(0.1)


def watched(is_ours, *moments, shadow=False, pool=""):
    """Run a scheduler, change who holds the lease ten seconds apart, and return the lines of each moment."""
    registry, lease, out = CollectorRegistry(), Lease(is_ours), []

    async def run():
        port = attrs.evolve(cluster_of("j").port, clock=virtual_time.VirtualClock(), cpu=InlineCpu())
        settings = SchedulerSettings(dump_folder="/nonexistent", shadow=shadow, intake=IntakeSettings(node_pool=pool))
        scheduler = make_scheduler(port, settings, lease, registry=registry)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.run)
            for each in (is_ours, *moments):
                lease.is_ours = each
                await anyio.sleep(10)
                out.append(exposition(registry).decode().splitlines())
            tasks.cancel_scope.cancel()

    virtual_time.run(run)
    return out


def leads(lines):
    return [line for line in lines if line.startswith("kai_is_leader")]


@pytest.mark.parametrize(("pool", "name"), [("", "default"), ("west", "west")])
def test_the_leader_metric_names_the_node_pool(pool, name):
    waits, decides, no_more = watched(False, True, False, pool=pool)
    assert leads(waits) == [f'kai_is_leader{{nodepool="{name}"}} 0.0']
    assert leads(decides) == [f'kai_is_leader{{nodepool="{name}"}} 1.0']
    assert leads(no_more) == [f'kai_is_leader{{nodepool="{name}"}} 0.0']


def test_a_shadow_says_nothing_of_who_decides():
    (lines,) = watched(True, shadow=True)
    assert leads(lines) == []


def names_of(lines):
    return {line.partition("{")[0].partition(" ")[0] for line in lines if not line.startswith("#")}


def test_sums_over_a_schedulers_metrics_exclude_shadows():
    (decides,), (shadows,) = watched(True), watched(True, shadow=True)
    assert not names_of(decides) & names_of(shadows)
    assert {"kai_shadow_gpu_idle", "kai_shadow_cycle_duration_seconds_count"} <= names_of(shadows)


def test_a_shadows_compared_decisions_have_one_metric_name():
    metrics = SchedulerMetrics(registry := CollectorRegistry(), shadow=True)
    metrics.shadowed("bind", "equal", 2)
    shown = exposition(registry).decode().splitlines()
    assert 'kai_shadow_decisions_total{decision="bind",outcome="equal"} 2.0' in shown


def test_a_former_leader_shows_no_metrics_of_cycles():
    decides, no_more, again = watched(True, False, True)
    shown = [line for line in decides if line.startswith(OF_ONE_CYCLE)]
    assert shown
    assert [line for line in no_more if line.startswith(OF_ONE_CYCLE)] == []
    assert [line for line in again if line.startswith(OF_ONE_CYCLE)] == shown
