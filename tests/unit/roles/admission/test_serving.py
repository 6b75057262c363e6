"""The webhooks on the network: what is answered to whom, and with which certificate."""

import gzip
import json
import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace

import anyio
import pytest
from anyio.streams.tls import TLSAttribute, TLSStream
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.scheduling.queue import Queue
from kai.basics.errors import ConfigError
from kai.cluster.signals import CertificateUsed
from kai.roles.admission import AdmissionSettings, mutate, serving
from kai.roles.admission.certificates import end_of
from kai.roles.admission.review import ALLOWED, refused
from kai.roles.admission.serving import (
    PATHS,
    Certificate,
    CertificateOfFiles,
    answered,
    queue_finder,
    serve_webhooks,
    shape_of,
)
from tests.doubles.packets import BODIES, LENGTHS, packets

PATH = PATHS[0]


def review(**more):
    request = {"uid": "u1", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": {"metadata": {}}, **more}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def ask(body, decide=lambda _: ALLOWED, method="POST", path=PATH):
    status, answer = answered(method, path, body, {PATH: decide})
    return status, json.loads(answer)["response"] if status == 200 else answer.decode()


def test_an_answer_has_the_uid_of_its_question():
    assert ask(review()) == (200, {"uid": "u1", "allowed": True})


def test_a_refusal_is_said_in_words():
    status, answer = ask(review(), lambda _: refused("no"))
    assert (status, answer["allowed"], answer["status"]["message"]) == (200, False, "no")


def test_a_pod_that_shares_a_gpu_is_changed():
    pod = {
        "metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
    }
    settings = AdmissionSettings(gpu_sharing_enabled=True)
    _, answer = ask(review(object=pod), lambda request: mutate(request, settings, lambda count: "x" * count))
    assert answer["allowed"]
    assert answer["patchType"] == "JSONPatch"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/elsewhere", b"", 404, "not found"),
        ("GET", PATH, b"", 405, "only POST"),
        ("POST", PATH, b"{", 400, "found no AdmissionReview"),
        ("POST", PATH, b"[]", 400, "found no AdmissionReview"),
        ("POST", PATH, b"[" * 100_000, 400, "found no AdmissionReview"),
        ("POST", PATH, b'"\\ud800"', 400, r'found "\ud800", expected an object'),
    ],
)
def test_an_invalid_request_is_answered_with_its_fault(method, path, body, status, words):
    found, answer = ask(body, method=method, path=path)
    assert found == status
    assert words in answer


def test_a_queue_is_found_with_its_quotas_and_children():
    manifest = {
        "metadata": {"name": "q"},
        "spec": {
            "parentQueue": "top",
            "resources": {"gpu": {"quota": 2}, "cpu": {"quota": -1}, "memory": {"quota": 3}},
        },
        "status": {"childQueues": ["a"]},
    }
    queue = structure_as(Queue, manifest)
    shape = shape_of(queue)
    assert (shape.name, shape.parent, shape.children) == ("q", "top", ("a",))
    assert (shape.quotas.gpu, shape.quotas.cpu, shape.quotas.memory) == (2, float("inf"), 3)

    class Store:
        def get(self, cls, name):
            return queue if (cls, name) == (Queue, "q") else None

    find = queue_finder(Store())
    assert find("q") == shape
    assert find("r") is None


def test_a_start_without_certificate_names_the_expected_files(tmp_path):
    with pytest.raises(ConfigError, match=r"webhooks: .*expected tls.crt and tls.key in PEM"):
        CertificateOfFiles(Certificate(folder=tmp_path))


def talked(certificate, talk, decide=lambda _: ALLOWED):
    """Return what a client hears that trusts the certificate."""

    async def both():
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(serve_webhooks, 0, CertificateOfFiles(certificate), {PATH: decide})
            answer = await talk(partial(connected, certificate, port))
            tasks.cancel_scope.cancel()
        return answer

    return anyio.run(both)


@asynccontextmanager
async def connected(certificate, port):
    context = ssl.create_default_context(cafile=certificate.folder / "tls.crt")
    bare = await anyio.connect_tcp("127.0.0.1", port)
    try:
        yield await TLSStream.wrap(bare, hostname="localhost", ssl_context=context, standard_compatible=False)
    finally:
        await anyio.aclose_forcefully(bare)


def head(length, path=PATH):
    written = length if isinstance(length, bytes) else str(length).encode()
    return b"POST %s?timeout=3s HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n" % (path.encode(), written)


def test_one_connection_carries_many_questions_over_tls(certificate):
    async def talk(connect):
        async with connect() as stream:
            answers = []
            for number in range(3):
                body = review(uid=f"u{number}")
                await stream.send(head(len(body)) + body[:20])
                await stream.send(body[20:])
                answers.append(await read(stream))
            body = review(uid="u3")
            chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            await stream.send(
                f"POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunks
            )
            return [*answers, await read(stream)]

    answers = talked(certificate, talk)
    assert [json.loads(body)["response"]["uid"] for _, body in answers] == ["u0", "u1", "u2", "u3"]


def test_a_too_large_body_is_refused_before_reading(certificate):
    async def talk(connect):
        async with connect() as stream:
            await stream.send(head(9 * 1024 * 1024))
            return await read(stream)

    first, words = talked(certificate, talk)
    assert b" 413 " in first
    assert b"Connection: close" in first
    assert words == b"found a request of excessive size\n"


def test_a_packed_body_is_not_unpacked(certificate):
    async def talk(connect):
        bomb = gzip.compress(b"[" * 5_000_000)
        packed = head(len(bomb)).replace(b"\r\nHost", b"\r\nContent-Encoding: gzip\r\nHost")
        async with connect() as stream:
            await stream.send(packed + bomb)
            refused_first = await read(stream)
        async with connect() as stream:
            await stream.send(head(len(review())) + review())
            return refused_first, await read(stream)

    (first, _), (then, _) = talked(certificate, talk)
    assert b" 400 " in first
    assert b" 200 " in then


def test_a_bug_is_answered_500_without_its_text(certificate):
    async def talk(connect):
        async with connect() as stream:
            await stream.send(head(len(review())) + review())
            return await read(stream)

    def fail(_):
        raise LookupError("secret detail")

    first, words = talked(certificate, talk, fail)
    assert b" 500 " in first
    assert b"secret" not in words


def test_a_certificate_is_reloaded_whole_or_not_at_all(certificate, monkeypatch):
    monkeypatch.setattr(serving, "_RELOAD", 0.01)
    renewed = made(certificate.folder.parent / "renewed")
    files = {name: (renewed.folder / name).read_bytes() for name in ("tls.crt", "tls.key")}
    wanted = ssl.PEM_cert_to_DER_cert(files["tls.crt"].decode())
    trusting = ssl.create_default_context(cafile=certificate.folder / "tls.crt")
    trusting.load_verify_locations(cafile=renewed.folder / "tls.crt")
    events, used = [], []
    log = SimpleNamespace(warning=lambda event, **_: events.append(event), info=lambda event, **_: events.append(event))
    monkeypatch.setattr(serving.structlog, "get_logger", lambda: log)

    async def shown(port):
        bare = await anyio.connect_tcp("127.0.0.1", port)
        stream = await TLSStream.wrap(bare, hostname="localhost", ssl_context=trusting, standard_compatible=False)
        found = stream.extra(TLSAttribute.peer_certificate_binary)  # noqa: S610 - anyio's, not Django's
        await anyio.aclose_forcefully(bare)
        return found

    async def until(is_so):
        with anyio.fail_after(120):
            while not is_so():  # noqa: ASYNC110 - what is waited for is a line in the log
                await anyio.sleep(0.01)

    async def talk():
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(serve_webhooks, 0, CertificateOfFiles(certificate, used.append), {})
            first = await shown(port)
            (certificate.folder / "tls.crt").write_bytes(files["tls.crt"])  # its key comes later
            await until(lambda: "certificate not renewed" in events)
            kept = await shown(port)
            (certificate.folder / "tls.key").write_bytes(files["tls.key"])
            await until(lambda: "certificate renewed" in events)
            last = await shown(port)
            tasks.cancel_scope.cancel()
        return first, kept, last

    first, kept, last = anyio.run(talk)
    assert first == kept != wanted
    assert last == wanted
    assert len(used) == 2
    assert used[-1] == CertificateUsed(end_of(files["tls.crt"].decode()))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(packets(PATH), min_size=1, max_size=5))
@example(sent=[head(length, PATH) + b"{}" for length in LENGTHS])
@example(sent=[head(len(body), PATH) + body for body in BODIES])
def test_no_packet_ends_the_webhooks(certificate, sent):
    async def talk(connect):
        answers = []
        for each in sent:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                async with connect() as stream:
                    await stream.send(each)
                    with anyio.move_on_after(0.2):
                        await stream.receive()
            async with connect() as stream:
                await stream.send(head(len(review()), PATH) + review())
                answers.append(json.loads((await read(stream))[1])["response"])
        return answers

    settings_of_pods = AdmissionSettings(gpu_sharing_enabled=True)
    found = talked(certificate, talk, lambda request: mutate(request, settings_of_pods, lambda count: "x" * count))
    assert [each["uid"] for each in found] == ["u1"] * len(sent)


def test_who_speaks_no_tls_ends_nothing(certificate):
    async def talk(connect):
        for nonsense in (b"\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 70_000):
            async with await anyio.connect_tcp("127.0.0.1", connect.args[1]) as stream:
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                    await stream.send(nonsense)
                    await stream.receive()
        async with connect() as stream:
            await stream.send(head(len(review())) + review())
            return await read(stream)

    first, _ = talked(certificate, talk)
    assert b" 200 " in first


async def read(stream):
    text = b""
    while b"\r\n\r\n" not in text:
        text += await stream.receive()
    head, _, body = text.partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += await stream.receive()
    return head, body


@pytest.fixture
def certificate(tmp_path):
    """Return a certificate for localhost, made as operators make one without further tools."""
    return made(tmp_path / "first")


def made(folder):
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no openssl here to make a certificate with")
    folder.mkdir()
    command = [
        *(program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        *("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return Certificate(folder=folder)
