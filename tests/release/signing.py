"""Signs the statement and the list of hashes with one key, and verifies both.

    KAI_SIGNING_KEY ──── file2:PATH, or what securesystemslib knows: awskms:…, gcpkms:…, azurekms:…, hsm:…
    KAI_VERIFYING_KEY ── the file with its public half; needed only where the private half never leaves its service

The key is one of ECDSA on P-256, which every service keeps and `openssl dgst` verifies on each machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import Signature, Signer, SSlibKey

from tests.release import provenance
from tests.release.packages import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIGNING: Final = "KAI_SIGNING_KEY"
VERIFYING: Final = "KAI_VERIFYING_KEY"
STATEMENT: Final = "provenance.dsse.json"
SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = "SHA256SUMS.sig"
PUBLIC: Final = "release.pub"
_FILE: Final = "file2:"
_SCHEME: Final = "ecdsa-sha2-nistp256"


def make_key(path: Path) -> str:
    """Write a new private key to a file that only its owner reads, and return its address."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return f"{_FILE}{path}"


def signer(environment: Mapping[str, str]) -> tuple[Signer, bytes]:
    """Return what signs with the key that the environment names, and its public half as PEM.

    Raises: ReleaseError if there is no such key, or it is of another kind.
    """
    address = environment.get(SIGNING, "")
    if not address:
        raise ReleaseError(f"{SIGNING}: found none, expected the address of a private key such as {_FILE}/path/key.pem")
    try:
        if VERIFYING in environment:
            public = Path(environment[VERIFYING]).read_bytes()
        elif address.startswith(_FILE):
            private = load_pem_private_key(Path(address.removeprefix(_FILE)).read_bytes(), None)
            public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        else:
            raise ReleaseError(f"{VERIFYING}: found none, expected the file with the public half of {SIGNING}")
        return Signer.from_priv_key_uri(address, _public(public)), public
    except (OSError, ValueError) as error:
        # The address may name an account, so that only its scheme is told.
        raise ReleaseError(f"{SIGNING}, {address.partition(':')[0]}: {type(error).__name__}: {error}") from error


def _public(pem: bytes) -> SSlibKey:
    key = SSlibKey.from_crypto(load_pem_public_key(pem))
    if key.scheme != _SCHEME:
        raise ReleaseError(f"the key: found one for {key.scheme}, expected one for {_SCHEME}")
    return key


def sign(folder: Path, document: dict[str, Any], key: Signer) -> None:
    """Write the signed statement, the hashes of all files in ``folder``, and the signature of these."""
    envelope = Envelope(provenance.encoded(document), provenance.MEDIA_TYPE, {})
    envelope.sign(key)
    (folder / STATEMENT).write_text(json.dumps(envelope.to_dict(), indent=2) + "\n")
    names = sorted(each.name for each in folder.iterdir() if each.name not in {SUMS, SIGNATURE, PUBLIC})
    sums = "".join(f"{provenance.sha256(folder / name)}  {name}\n" for name in names).encode()
    (folder / SUMS).write_bytes(sums)
    (folder / SIGNATURE).write_bytes(bytes.fromhex(key.sign(sums).signature))


def verify(folder: Path, public: bytes) -> str:
    """Return the commit of a release, if each signature is that of the key and each file is the one that was signed.

    Raises: ReleaseError.
    """
    key = _public(public)
    sums = (folder / SUMS).read_bytes()
    try:
        key.verify_signature(Signature(key.keyid, (folder / SIGNATURE).read_bytes().hex()), sums)
    except UnverifiedSignatureError as error:
        raise ReleaseError(f"{SIGNATURE}: found no signature of {SUMS} by this key, expected one") from error
    for line in sums.decode().splitlines():
        stated, name = line.split("  ")
        path = folder / Path(name).name
        found = provenance.sha256(path) if path.is_file() else "no file"
        if found != stated:
            raise ReleaseError(f"{name}, sha256: found {found}, expected {stated} as {SUMS} says")
    return provenance.check(statement_of(folder, public), folder)


def statement_of(folder: Path, public: bytes) -> bytes:
    """Return the bytes of the statement, if the key signed them.

    Raises: ReleaseError.
    """
    try:
        envelope = Envelope.from_dict(json.loads((folder / STATEMENT).read_bytes()))
        envelope.verify([_public(public)], 1)
    except (VerificationError, ValueError, KeyError) as error:
        raise ReleaseError(f"{STATEMENT}: found no signature by this key, expected one") from error
    if envelope.payload_type != provenance.MEDIA_TYPE:
        raise ReleaseError(f"{STATEMENT}: found {envelope.payload_type}, expected {provenance.MEDIA_TYPE}")
    return envelope.payload
