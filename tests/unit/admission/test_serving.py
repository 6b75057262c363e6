"""The webhooks on the network: what is answered to whom, and with which certificate."""

import json
import shutil
import ssl
import subprocess

import anyio
import pytest
from anyio.streams.tls import TLSStream

from kai.admission import AdmissionSettings, mutate
from kai.admission.review import ALLOWED, refused
from kai.admission.serving import PATHS, Certificate, answered, queue_finder, serve_webhooks, shape_of
from kai.api.codec import structure_as
from kai.api.queue import Queue
from kai.errors import ConfigError

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
    ],
)
def test_what_is_no_question_is_answered_with_what_is_wrong(method, path, body, status, words):
    found, answer = ask(body, method=method, path=path)
    assert found == status
    assert words in answer


def test_a_bug_is_left_to_the_failure_policy_of_the_webhook():
    def fail(_):
        raise LookupError("secret detail")

    status, answer = ask(review(), fail)
    assert status == 500
    assert "secret" not in answer


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


def test_without_a_certificate_the_start_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(ConfigError, match=r"webhooks: .*expected tls.crt and tls.key in PEM"):
        anyio.run(serve_webhooks, 0, Certificate(folder=tmp_path), {})


def test_one_connection_carries_many_questions_over_tls(certificate):
    async def talk():
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(serve_webhooks, 0, certificate, {PATH: lambda _: ALLOWED})
            context = ssl.create_default_context(cafile=certificate.folder / "tls.crt")
            bare = await anyio.connect_tcp("127.0.0.1", port)
            stream = await TLSStream.wrap(bare, hostname="localhost", ssl_context=context, standard_compatible=False)
            answers = []
            for number in range(3):
                body = review(uid=f"u{number}")
                head = f"POST {PATH}?timeout=3s HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
                await stream.send(head.encode() + body[:20])
                await stream.send(body[20:])
                answers.append(await read(stream))
            await stream.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            answers.append(await read(stream))
            await anyio.aclose_forcefully(bare)
            tasks.cancel_scope.cancel()
        return answers

    *good, last = anyio.run(talk)
    assert [json.loads(body)["response"]["uid"] for _, body in good] == ["u0", "u1", "u2"]
    assert b"413" in last[0]


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
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no openssl here to make a certificate with")
    command = [
        *(program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        *("-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return Certificate(folder=tmp_path)
