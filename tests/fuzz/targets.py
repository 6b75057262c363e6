"""The decoders: one row for each, with samples and the call that reads them.

API objects that cycles decide on have a module of their own, `cluster`, because what is wrong with one may show only
beside others.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from kai.api import values as times
from kai.api.codec.manifest_text import load_values
from kai.api.codec.structuring import structure_all
from kai.api.conventions.binding import read_grant
from kai.api.kubernetes.pod import Pod
from kai.basics import parsing
from kai.basics.errors import InputError
from kai.cli.arguments import read_selector
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.cli.running.shards import render
from kai.cluster.caching import raw
from kai.cluster.clock import SystemClock
from kai.cluster.election.leading import _record
from kai.cluster.process.decisions import read_line
from kai.cluster.process.listener import read_address
from kai.cluster.requesting.reviews import Reviews
from kai.cluster.transport.calls import Answer, refusal_of, status_of
from kai.cluster.transport.credentials import Source
from kai.cluster.transport.kubeconfig import read_contexts
from kai.dashboard.api import question_of
from kai.deciding.configuration.past_usage import Cron
from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry
from kai.facts.model.device_selectors import Selectors, version
from kai.lab.sources.archive import read_archive
from kai.lab.traces.trace_reading import read_nodes, read_trace
from kai.lab.virtual.results.documents import result_of_document
from kai.lab.virtual.scenes.cluster_file import read_cluster_file
from kai.lab.virtual.scenes.from_manifests import read_workload
from kai.manifests.lint import lint
from kai.manifests.manifest_reading import documents_of, open_text
from kai.manifests.manifest_reading import read as read_manifests
from kai.roles.admission import AdmissionSettings, mutate
from kai.roles.admission.rotation import read_held
from kai.roles.admission.serving import MUTATING, PATHS, answered
from kai.roles.admission.webhooks import validate
from kai.roles.podgrouper.grouper import KARTA
from kai.roles.podgrouper.karta.definition import described_kind, read_definition
from kai.roles.podgrouper.karta.evaluate import evaluate
from kai.roles.podgrouper.karta.values import QueryError
from kai.roles.podgrouper.resource import Resource
from kai.roles.scheduler.cycle.past_usage import UsageError, read_samples
from tests.conformance.answer_binding import answer as answer_binding
from tests.conformance.answer_podgrouping import answer as answer_podgrouping
from tests.conformance.answer_status import answer as answer_status
from tests.fuzz import samples, texts
from tests.fuzz.target import Target
from tests.unit.facts.model.test_device_selectors import DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ROOT: Final = Path(__file__).parents[2]
REGISTRY: Final = Registry.installed()
SETTINGS: Final = AdmissionSettings(gpu_sharing_enabled=True, queue_quota_validation=True)
FOLDER: Final = Path(tempfile.mkdtemp(prefix="kai-fuzz-"))


# --- Reading -------------------------------------------------------------------------------------------------------


def _text(read: Callable[[str], object]) -> Callable[[Any], object]:
    """Return a reader of bytes as it gets them: as text."""
    return lambda given: read(given.decode("utf-8", "replace"))


def _file(ending: str, read: Callable[[str], object]) -> Callable[[Any], object]:
    """Return a reader of bytes as it gets them: in a file."""
    path = FOLDER / f"given{ending}"

    def of_file(given: bytes) -> object:
        path.write_bytes(given)
        return read(str(path))

    return of_file


def settled(work: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("found a coroutine that waits, expected one that does not")


def _review(given: Any) -> object:
    doors = {**dict.fromkeys(PATHS, _validated), **dict.fromkeys(MUTATING, _mutated)}
    status, _ = answered("POST", given["path"], json.dumps(given["review"]).encode("utf-8", "replace"), doors)
    return status


def _mutated(request: Any) -> Any:
    return mutate(request, SETTINGS, lambda length: "x" * length)


def _validated(request: Any) -> Any:
    return validate(request, SETTINGS, lambda _: None)


def _identified(given: Any) -> object:
    async def send(*_: object) -> Answer:
        return Answer(status=201, body=_json(given))

    return settled(Reviews(send, SystemClock()).identify("token"))


def _lines(given: bytes) -> object:
    """Read a stream that ends anywhere, as a watch does."""
    found = []
    for line in given.split(b"\n"):
        event = raw.line_of(line)
        if event is not None:
            found.append((event.type, raw.manifest_of(event.object, Pod)))
    page = raw.page_of(given)
    return found, page and [raw.manifest_of(each, Pod) for each in page.items or ()]


def _refused(given: Any) -> object:
    wait = str(given.get("retryAfter", "")) if isinstance(given, dict) else ""
    code = given.get("code") if isinstance(given, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    answer = Answer(status=status, body=_json(given), retry_after=wait)
    return refusal_of(answer, is_write=True, now=0.0), status_of(answer.body)


def _archive(given: Any) -> object:
    path = FOLDER / "snapshot.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("snapshot.json", _json(given))
    return read_archive(path, "snapshot.zip")


def _manifests(given: bytes) -> object:
    source, values = open_text(given, "given.yaml")
    reading = read_manifests(documents_of(source, values))
    return lint(reading)


def _workload(given: Any) -> object:
    source, values = open_text(_json(given), "given.yaml")
    return read_workload(documents_of(source, values), 0, 14_400.0)


def _karta(given: Any) -> object:
    karta = Resource.of(given if isinstance(given, dict) else {}, KARTA)
    return described_kind(karta), read_definition(karta)


def _configuration(given: Any) -> object:
    return make_profile(read_configuration(given, "policy.yaml", REGISTRY), REGISTRY)


def _bound(given: Any) -> object:
    structure_all(given["objects"])  # what cannot be read the binder never sees
    return answer_binding(given)


def _json(given: Any) -> bytes:
    return json.dumps(given).encode("utf-8", "replace")


def _credentials(given: bytes) -> object:
    path = FOLDER / "kubeconfig"
    path.write_bytes(given)
    return read_contexts(str(path)), Source(kubeconfig=str(path), environment={}).load()


# --- Samples -------------------------------------------------------------------------------------------------------


def _texts(*given: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: tuple(each.encode() for each in given)


def _values(*given: Any) -> Callable[[], tuple[Any, ...]]:
    return lambda: given


def _cases(kind: str) -> Callable[[], tuple[Any, ...]]:
    return lambda: samples.cases(kind)


@functools.cache
def _reviews() -> tuple[Any, ...]:
    found = []
    for case in samples.cases("admission"):
        manifest = case.get("object") or case.get("oldObject") or {}
        request = {
            "uid": "u",
            "operation": case["operation"],
            "kind": {"kind": manifest.get("kind", "")},
            "namespace": "default",
            "object": case.get("object"),
            "oldObject": case.get("oldObject"),
        }
        paths = MUTATING if case["webhook"] == "mutating" else [each for each in PATHS if each not in MUTATING]
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        found += [{"path": path, "review": review} for path in paths]
    return tuple(found)


@functools.cache
def _snapshots() -> tuple[Any, ...]:
    with zipfile.ZipFile(ROOT / "tests" / "samples" / "kai-snapshot-lab.zip") as file:
        document = json.loads(file.read("snapshot.json"))
    lists = document["rawObjects"]
    document["rawObjects"] = {key: items[:2] if isinstance(items, list) else items for key, items in lists.items()}
    return (document,)


def _small_zip() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("snapshot.json", _json({"rawObjects": {"pods": [], "nodes": []}, "config": {}}))
    return held.getvalue()


@functools.cache
def _files() -> tuple[bytes, ...]:
    examples = [*(ROOT / "examples" / "rack").glob("*.yaml"), *(ROOT / "examples" / "lab").glob("[13]*.yaml")]
    return tuple(path.read_bytes()[:6000].rpartition(b"\n---")[0] for path in sorted(examples))


# --- The table -----------------------------------------------------------------------------------------------------

TARGETS: Final = (
    Target(
        name="quantity",
        samples=_texts("500m", "2Gi", "1e3", "0.5", "-1", "1.5T", "128974848"),
        read=_text(lambda text: parsing.amount(text, 1000)),
        refusals=(parsing.QuantityError,),
        is_raw=True,
    ),
    Target(
        name="selector of devices",
        weight=1,
        samples=_texts(*texts.SELECTORS),
        read=_text(lambda text: Selectors().selects(text, "gpu.example.com", DEVICE)),
        is_raw=True,
    ),
    Target(
        name="version of devices",
        samples=_texts("1.2.3", "1.2.3-rc.1+x", "0.0.1-a"),
        read=_text(version),
        refusals=(ValueError,),
        is_raw=True,
    ),
    Target(
        name="duration",
        samples=_texts("1h30m", "90s", "1.5d", "-2w", "100ms", "0"),
        read=_text(parsing.nanoseconds),
        refusals=(parsing.DurationError,),
        is_raw=True,
    ),
    Target(
        name="time",
        samples=_texts("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456Z", "2026-01-31t12:00:00.5+02:00"),
        read=_text(times.instant),
        is_raw=True,
    ),
    Target(
        name="number",
        samples=_texts("12", "-3", "0.5", "1e-3", "0x1p-2", "inf"),
        read=_text(lambda text: (parsing.floating(text), parsing.signed(text), parsing.unsigned(text))),
        is_raw=True,
    ),
    Target(
        name="cron",
        samples=_texts("0 0 * * 1", "*/5 1-3 1,15 JAN-MAR MON#2", "@daily", "0 0 L * *"),
        read=_text(Cron.read),
        refusals=(ValueError,),
        is_raw=True,
    ),
    Target(name="selector", samples=_texts("a=b,c!=d", "a in (b, c),!d", "e"), read=_text(read_selector), is_raw=True),
    Target(
        name="query",
        samples=_texts(*texts.QUERIES),
        read=_text(lambda text: evaluate(text, texts.VALUE)),
        refusals=(QueryError, InputError),
        is_raw=True,
    ),
    Target(name="yaml", weight=1, samples=_files, read=lambda given: load_values(given, "given.yaml"), is_raw=True),
    Target(name="manifests", weight=1, samples=_files, read=_manifests, is_raw=True),
    Target(name="stream", samples=_texts(texts.STREAM, texts.PAGE), read=_lines, is_raw=True),
    Target(
        name="grant",
        samples=_texts('{"gpus":{"GPU-1":"0.5"},"queue":"a","group":"g","portion":0.5,"pool":""}'),
        read=_text(read_grant),
        is_raw=True,
    ),
    Target(name="decision log", samples=_values(texts.DECISION), read=lambda given: read_line(_json(given))),
    *(
        Target(name=f"trace {name}", samples=_texts(text), read=_file(ending, read_trace), is_raw=True)
        for name, ending, text in (
            ("openb", ".csv", texts.OPENB),
            ("helios", ".csv", texts.HELIOS),
            ("slurm", ".txt", texts.SLURM),
            ("slurm as JSON", ".json", texts.SACCT_JSON),
            ("ours", ".csv", texts.OURS),
            ("philly", ".json", texts.PHILLY),
        )
    ),
    Target(
        name="trace of nodes",
        samples=_texts("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,1024,0,\n"),
        read=_file(".csv", read_nodes),
        is_raw=True,
    ),
    Target(
        name="compressed trace",
        samples=lambda: (gzip.compress(texts.OPENB.encode()), gzip.compress(texts.OURS.encode())),
        read=_file(".csv.gz", read_trace),
        is_raw=True,
    ),
    Target(
        name="cluster file",
        samples=lambda: (_json(load_values(texts.CLUSTER, "cluster.yaml")[0]), texts.CLUSTER.encode()),
        read=lambda given: read_cluster_file(given, "cluster.yaml"),
        is_raw=True,
    ),
    Target(
        name="cluster file, by value",
        samples=lambda: load_values(texts.CLUSTER, "cluster.yaml"),
        read=lambda given: read_cluster_file(_json(given), "cluster.yaml"),
    ),
    Target(name="workload", weight=1, samples=samples.workloads, read=_workload),
    Target(name="snapshot", weight=1, samples=_snapshots, read=_archive),
    Target(
        name="zip",
        weight=1,
        samples=lambda: ((ROOT / "tests" / "samples" / "kai-snapshot-lab.zip").read_bytes()[:20_000], _small_zip()),
        read=_file(".zip", lambda path: read_archive(Path(path), "given.zip")),
        is_raw=True,
    ),
    Target(name="admission review", samples=_reviews, read=_review, within="review"),
    Target(name="token review", samples=_values(texts.TOKEN), read=_identified),
    Target(
        name="lease",
        samples=_values(texts.LEASE),
        read=lambda given: _record(Answer(status=200, body=_json(given))),
    ),
    Target(name="refusal", samples=_values(texts.STATUS), read=_refused),
    Target(
        name="past usage",
        weight=1,
        samples=_values(texts.SAMPLES),
        read=lambda given: read_samples(200, _json(given)),
        refusals=(UsageError,),
    ),
    Target(name="kubeconfig", weight=1, samples=_texts(texts.KUBECONFIG), read=_credentials, is_raw=True),
    Target(name="configuration", samples=_values(*texts.POLICIES), read=_configuration),
    Target(
        name="shard",
        samples=_values(texts.SHARD),
        read=lambda given: render([given] if isinstance(given, dict) else [{}], "shard.yaml", FLAGS),
    ),
    Target(
        name="flags",
        samples=_texts("scheduler\n--v=4\n--leader-elect", "binder\n--plugins={}\n--metrics-bind-address=:8080"),
        read=_text(lambda text: read_flags(text.split("\n"), FLAGS, ROLES, TOGETHER)),
        is_raw=True,
    ),
    Target(
        name="address",
        samples=_texts(":8080", "127.0.0.1:80", "[::1]:443", "0"),
        read=_text(lambda text: read_address(text, "--x")),
        is_raw=True,
    ),
    Target(name="karta", weight=1, samples=samples.kartas, read=_karta),
    Target(name="pod grouping", weight=1, samples=_cases("podgrouping"), read=answer_podgrouping, within="objects"),
    Target(name="binding", samples=_cases("binding"), read=_bound, within="objects"),
    Target(name="status", samples=_cases("status"), read=answer_status, within="objects"),
    Target(
        name="secret of certificates",
        samples=_values(
            {
                "metadata": {"annotations": {"kai.scheduler/certificate-promoted": "1"}},
                "data": {"tls.crt": "YQ==", "ca.crt": "YQ=="},
            }
        ),
        read=lambda given: read_held(given if isinstance(given, dict) else {}),
    ),
    Target(
        name="question",
        samples=_texts("/api/v1/jobs/ns/name?namespace=a", "/api/v1/queues/x"),
        read=_text(lambda text: question_of(text.partition("?")[0], dict(parse_qsl(text.partition("?")[2])))),
        is_raw=True,
    ),
    Target(
        name="result of a run",
        weight=1,
        samples=samples.results,
        read=lambda given: result_of_document(given, "result.json"),
    ),
)
