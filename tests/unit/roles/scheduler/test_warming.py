import threading

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from kai.deciding.configuration.profiles import default_profile
from kai.facts.compiled import warm
from kai.facts.compiled.pace import WORTH_LOADING
from kai.facts.compiled.warm import Warmth
from kai.roles.scheduler import kernel_warmup
from kai.roles.scheduler.kernel_warmup import LASTING, MOST_PLAIN, PART_SECONDS, Warming
from tests.unit.roles.scheduler.small import small_cluster

pytestmark = pytest.mark.anyio
PROFILE = default_profile()


@attrs.define
class Compiler:
    """A compiler that goes on when it is told to, and how kernels run."""

    missing: int = 0
    compiled: int = 0
    is_asked: bool = False
    running: list[str] = attrs.field(factory=list)
    go_on: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))

    def warm(self, *_modules, tell):
        self.is_asked = True
        for done in range(self.missing + 1):
            self.compiled = done
            tell(done, self.missing)
            if done < self.missing:
                self.go_on.acquire()
        return Warmth(98, self.missing, None)


@pytest.fixture
def compiler(monkeypatch):
    made = Compiler()
    monkeypatch.setattr(kernel_warmup, "is_plain", lambda: made.running[-1:] != ["compiled"])
    monkeypatch.setattr(kernel_warmup, "run_plainly", lambda: made.running.append("plainly"))
    monkeypatch.setattr(kernel_warmup, "run_compiled", lambda: made.running.append("compiled"))
    monkeypatch.setattr(warm, "missing", lambda *_modules: [object()] * made.missing)
    monkeypatch.setattr(warm, "warm", made.warm)
    monkeypatch.setattr(kernel_warmup, "compile_apart", lambda *_: None)
    yield made
    made.go_on.release(1000)


@pytest.fixture
def of_work(monkeypatch):
    """Return a cluster with so much work."""

    def made(work):
        monkeypatch.setattr(kernel_warmup, "work_of", lambda *_counts: work)
        return small_cluster()

    return made


async def until(condition):
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - what a thread has done, which cannot set an event of ours
            await anyio.sleep(0.001)


async def test_a_small_cluster_loads_no_kernels(compiler):
    async with anyio.create_task_group() as tasks:
        kernels = Warming(PROFILE)
        tasks.start_soon(kernels.run)
        await until(lambda: compiler.running)
        for _ in range(10):
            await kernels.settle(small_cluster())
        assert (compiler.running, kernels.missing) == (["plainly"], None)
        assert (kernels.problem(), kernels.note()) == ("", "")
        tasks.cancel_scope.cancel()


async def test_a_large_cluster_loads_kernels_before_pods_wait(compiler):
    large = attrs.evolve(small_cluster(), nodes=small_cluster().nodes[:1] * LASTING)
    async with anyio.create_task_group() as tasks:
        kernels = Warming(PROFILE)
        tasks.start_soon(kernels.run)
        await kernels.settle(large)
        assert kernels.problem() == ""
    assert kernels.missing == 0


@pytest.mark.parametrize("waits", [False, True])
async def test_kernels_are_loaded_at_once_where_no_pod_waits(compiler, waits):
    cluster = small_cluster()
    pods = cluster.pods if waits else ()
    nodes = cluster.nodes[:1] * (LASTING // 9 + 1)
    async with anyio.create_task_group() as tasks:
        kernels = Warming(PROFILE)
        tasks.start_soon(kernels.run)
        await kernels.settle(attrs.evolve(cluster, nodes=nodes, pods=pods))
    assert (kernels.missing, compiler.is_asked) == (0, not waits)


async def test_cached_kernels_are_awaited_silently(compiler, of_work):
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            kernels = Warming(PROFILE)
            tasks.start_soon(kernels.run)
            await kernels.settle(of_work(WORTH_LOADING + 1))
    assert compiler.running == ["plainly", "compiled"]
    assert (kernels.problem(), kernels.note(), logs) == ("", "", [])


async def test_each_cached_kernel_is_left_to_its_first_call(compiler, of_work, monkeypatch):
    given_back = []
    monkeypatch.setattr(kernel_warmup, "give_back", given_back.append)
    async with anyio.create_task_group() as tasks:
        kernels = Warming(PROFILE)
        tasks.start_soon(kernels.run)
        await kernels.settle(of_work(WORTH_LOADING + 1))
    assert (compiler.running, compiler.is_asked) == (["plainly", "compiled"], False)
    before = len(given_back)
    for _ in range(3):  # the first compiled cycle has loaded what it calls
        await kernels.settle(small_cluster())
    assert len(given_back) == before + 1


async def test_kernels_are_compiled_beside_cycles_that_can_do_without(compiler, of_work):
    compiler.missing = 3
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            kernels = Warming(PROFILE)
            tasks.start_soon(kernels.run)
            await kernels.settle(of_work(MOST_PLAIN))
            assert compiler.running == ["plainly"]
            compiler.go_on.release()
            await until(lambda: kernels.compiled == 1)
            assert (kernels.problem(), kernels.note()) == ("", "compiling kernels, 1 of 3")
            await kernels.settle(of_work(1))
            assert compiler.running == ["plainly"]
            compiler.go_on.release(2)
            await until(lambda: not kernels.note())
            await kernels.settle(of_work(1))
    assert compiler.running == ["plainly", "compiled"]
    assert [(each["event"], each["kernels"]) for each in logs] == [("compiling kernels", 3), ("kernels compiled", 3)]


async def test_a_too_large_cycle_is_partial_until_kernels_compiled(compiler, of_work):
    compiler.missing = 2
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            kernels = Warming(PROFILE)
            tasks.start_soon(kernels.run)
            for _ in range(2):
                await kernels.settle(of_work(MOST_PLAIN + 1))
                assert (compiler.running, kernels.part_seconds) == (["plainly"], PART_SECONDS)
            note = "compiling kernels, 0 of 2; cycles decide a part and evict for no job until then"
            assert (kernels.problem(), kernels.note()) == ("", note)
            await kernels.settle(of_work(MOST_PLAIN))
            assert (kernels.part_seconds, kernels.note()) == (None, "compiling kernels, 0 of 2")
            compiler.go_on.release(2)
            await until(lambda: not kernels.note())
            await kernels.settle(of_work(MOST_PLAIN + 1))
            assert (compiler.running, kernels.part_seconds) == (["plainly", "compiled"], None)
    said = "cycles decide a part until kernels are compiled"
    assert [each["event"] for each in logs] == ["compiling kernels", said, "kernels compiled"]


async def test_a_process_that_ends_compiles_no_further(compiler, of_work):
    compiler.missing = 90
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            kernels = Warming(PROFILE)
            tasks.start_soon(kernels.run)
            await kernels.settle(of_work(MOST_PLAIN))
            compiler.go_on.release(1)
            await until(lambda: kernels.compiled == 1)
            kernels.end()
            compiler.go_on.release(1)
    assert compiler.compiled <= 3
    assert [each["event"] for each in logs] == ["compiling kernels"]
