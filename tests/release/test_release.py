"""What is built of a commit is the same twice, and a user finds out when anything of a release was changed."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release import packages, provenance, signing
from tests.release.__main__ import main

PAGE = packages.ROOT / "docs" / "security.md"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WHEEL = "kai_scheduler-0.1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with a throw-away key."""
    return {signing.SIGNING: signing.make_key(tmp_path_factory.mktemp("key") / "key.pem")}


@pytest.fixture
def signed(tmp_path: Path, key: dict[str, str]) -> Path:
    """Return the folder of a release whose wheel is a few bytes."""
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / WHEEL).write_bytes(b"code")
    document = {
        "_type": provenance.STATEMENT,
        "subject": [{"name": WHEEL, "digest": {"sha256": provenance.sha256(folder / WHEEL)}}],
        "predicateType": provenance.PREDICATE,
        "predicate": {"buildDefinition": {"externalParameters": {"commit": COMMIT}}},
    }
    signer, public = signing.signer(key)
    signing.sign(folder, document, signer)
    (folder / signing.PUBLIC).write_bytes(public)
    return folder


def public_of(folder: Path) -> bytes:
    return (folder / signing.PUBLIC).read_bytes()


def renew_sums(folder: Path) -> None:
    """Write the hashes of what is there now: without the key they cannot be signed."""
    names = [line.split("  ")[1] for line in (folder / signing.SUMS).read_text().splitlines()]
    (folder / signing.SUMS).write_text("".join(f"{provenance.sha256(folder / name)}  {name}\n" for name in names))


def test_a_release_that_was_not_touched_is_verified(signed: Path) -> None:
    assert signing.verify(signed, public_of(signed)) == COMMIT


def test_a_wheel_that_was_changed_is_refused(signed: Path) -> None:
    (signed / WHEEL).write_bytes(b"other")
    with pytest.raises(packages.ReleaseError, match=rf"{re.escape(WHEEL)}, sha256: found .* as SHA256SUMS says"):
        signing.verify(signed, public_of(signed))


def test_a_wheel_that_is_gone_is_refused(signed: Path) -> None:
    (signed / WHEEL).unlink()
    with pytest.raises(packages.ReleaseError, match="found no file"):
        signing.verify(signed, public_of(signed))


def test_hashes_that_were_written_anew_are_refused(signed: Path) -> None:
    (signed / WHEEL).write_bytes(b"other")
    renew_sums(signed)
    with pytest.raises(packages.ReleaseError, match=r"SHA256SUMS\.sig: found no signature"):
        signing.verify(signed, public_of(signed))


def test_a_statement_that_was_changed_is_refused(signed: Path) -> None:
    envelope = json.loads((signed / signing.STATEMENT).read_text())
    payload = base64.b64decode(envelope["payload"]).replace(COMMIT.encode(), b"f" * 40)
    envelope["payload"] = base64.b64encode(payload).decode()
    (signed / signing.STATEMENT).write_text(json.dumps(envelope))
    with pytest.raises(packages.ReleaseError, match="found no signature by this key"):
        signing.statement_of(signed, public_of(signed))
    with pytest.raises(packages.ReleaseError, match=r"provenance\.dsse\.json, sha256"):
        signing.verify(signed, public_of(signed))


def test_a_statement_about_other_files_is_refused(signed: Path) -> None:
    payload = signing.statement_of(signed, public_of(signed))
    (signed / WHEEL).write_bytes(b"other")
    with pytest.raises(packages.ReleaseError, match="as the statement says"):
        provenance.check(payload, signed)


@pytest.mark.parametrize("change", [{"_type": "x"}, {"predicateType": "x"}, {"subject": []}])
def test_a_statement_of_another_form_is_refused(signed: Path, change: dict[str, object]) -> None:
    said = json.loads(signing.statement_of(signed, public_of(signed)))
    with pytest.raises(packages.ReleaseError, match=f"statement, {next(iter(change))}: found"):
        provenance.check(provenance.encoded({**said, **change}), signed)


def test_what_another_key_signed_is_refused(signed: Path, tmp_path: Path) -> None:
    _, other = signing.signer({signing.SIGNING: signing.make_key(tmp_path / "other.pem")})
    with pytest.raises(packages.ReleaseError, match="by this key"):
        signing.verify(signed, other)
    with pytest.raises(packages.ReleaseError, match="by this key"):
        signing.statement_of(signed, other)


def test_openssl_reads_the_signature_of_the_statement_without_kai(signed: Path, tmp_path: Path) -> None:
    envelope = json.loads((signed / signing.STATEMENT).read_text())
    kind, payload = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"])
    (tmp_path / "bytes").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = ["openssl", "dgst", "-sha256", "-verify", str(signed / signing.PUBLIC), "-signature"]
    subprocess.run([*command, str(tmp_path / "sig"), str(tmp_path / "bytes")], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "KAI_SIGNING_KEY: found none, expected the address of a private key"),
        ({"KAI_SIGNING_KEY": "awskms:1234"}, "KAI_VERIFYING_KEY: found none, expected the file"),
        ({"KAI_SIGNING_KEY": "file2:/nowhere/key.pem"}, "KAI_SIGNING_KEY, file2: FileNotFoundError"),
    ],
)
def test_a_key_that_is_missing_is_named(environment: dict[str, str], text: str) -> None:
    with pytest.raises(packages.ReleaseError, match=text):
        signing.signer(environment)


def test_a_key_is_read_by_its_owner_alone(key: dict[str, str]) -> None:
    path = Path(key[signing.SIGNING].removeprefix("file2:"))
    assert path.stat().st_mode & 0o077 == 0


def commands() -> list[str]:
    """Return what the page tells users to type."""
    section = PAGE.read_text().split("## What is signed", 1)[1].split("\n## ", 1)[0]
    return section.split("```")[1].strip().splitlines()


def test_a_release_is_verified_by_the_documented_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "release"
    monkeypatch.setattr("sys.argv", ["release", "--throw-away-key", "--folder", str(folder)])
    assert main() == 0, capsys.readouterr().err
    assert "verified: signatures, hashes and provenance of commit" in capsys.readouterr().out
    names = {each.name for each in folder.iterdir()}
    assert {signing.SUMS, signing.SIGNATURE, signing.STATEMENT, signing.PUBLIC} < names
    assert {each.rpartition(".")[2] for each in names} >= {"whl", "gz"}
    typed = commands()
    assert len(typed) >= 4
    for command in typed:
        assert run_as_user(command, folder).returncode == 0, command
    wheel = next(folder.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    assert [run_as_user(command, folder).returncode != 0 for command in typed].count(True) == 2


def run_as_user(command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the page in a folder with the release; for kai's own check the sources are at hand."""
    bash = shutil.which("bash")
    assert bash is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(packages.ROOT)}
    line = ["-o", "pipefail", "-c", command]
    return subprocess.run([bash, *line], cwd=folder, env=environment, capture_output=True, check=False)
