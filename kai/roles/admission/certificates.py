"""Certificates that kai makes itself: each signed by an authority that signs one certificate and is never used again.

The key of the authority is dropped as soon as it has signed. So the contents of the Secret suffice to serve these
webhooks, and to sign nothing. A renewal is therefore a new pair with a new authority; `kai.roles.admission.rotation`
has the API server trust the new authority before the old one is dropped.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from typing import TYPE_CHECKING, Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kai.basics.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

# A certificate from the future is refused, and clocks may be hours apart. A day is harmless: the authority signs
# nothing else.
_BACKDATED: Final = 86400.0
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----\n"
_LONGEST_COMMON_NAME: Final = 64


@attrs.frozen(kw_only=True)
class Pair:
    """A certificate with its key, and the authority that signed it; all in PEM."""

    certificate: str
    key: str = attrs.field(repr=False)
    authority: str


def make_pair(hosts: Sequence[str], now: float, lifetime: float) -> Pair:
    """Return a certificate for the host names of a server, signed by a new authority that is used only here.

    Units: seconds since the epoch, seconds.
    """
    start, end = _date(now - _BACKDATED), _date(now + lifetime)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    # Two authorities with one name would be taken for each other while a bundle has both.
    authority_name = _named(f"kai webhooks {x509.random_serial_number():x}")

    def begun(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority_name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return builder.not_valid_before(start).not_valid_after(end).add_extension(identifier, critical=False)

    authority = (
        begun(authority_name, authority_key)
        # No authority below it: even with its key it could sign certificates of servers only.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    server = (
        begun(_named(hosts[0]), server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        # Clients of Go read the host names from here alone, and ignore the common name.
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return Pair(
        certificate=server.public_bytes(pem).decode(),
        key=key.decode(),
        authority=authority.public_bytes(pem).decode(),
    )


def end_of(pem: str) -> float:
    """Return when a certificate expires, in seconds since the epoch.

    Raises: InputError if it cannot be read.
    """
    try:
        end: dt.datetime = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    except ValueError as error:
        raise InputError.about("certificate", "PEM", found=str(error), wanted="a certificate") from None
    return end.timestamp()


def has_begun(pem: str, now: float) -> bool:
    """Return whether a certificate is valid already: one from the future was made while a clock was wrong.

    Raises: InputError if it cannot be read.
    """
    try:
        return x509.load_pem_x509_certificate(pem.encode()).not_valid_before_utc.timestamp() <= now
    except ValueError as error:
        raise InputError.about("certificate", "PEM", found=str(error), wanted="a certificate") from None


def hosts_of(pem: str) -> frozenset[str]:
    """Return the host names for which a certificate is valid.

    Raises: InputError if it cannot be read.
    """
    try:
        extensions = x509.load_pem_x509_certificate(pem.encode()).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise InputError.about("certificate", "PEM", found=str(error), wanted="one that names its server") from None
    return frozenset(names.get_values_for_type(x509.DNSName))


def split(bundle: str) -> tuple[str, ...]:
    """Return the certificates of a PEM bundle, each with its BEGIN and END lines, not parsed."""
    pieces = bundle.replace("\r\n", "\n").split(_BEGIN)[1:]
    # Not parsed: one authority that cannot be read must not hide the others.
    return tuple(_BEGIN + piece.partition(_END)[0] + _END for piece in pieces if _END in piece)


def context_of(pair: Pair) -> ssl.SSLContext:
    """Return a server's TLS context with a pair.

    Raises: ConfigError if certificate and key do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python's ssl module reads files only. This file is anonymous and in memory, so the key is on no disk.
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        try:
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        except (OSError, ValueError) as error:
            raise ConfigError.about(
                "webhooks", "certificate", found=str(error), wanted="a certificate and its key"
            ) from None
    return context


def _named(name: str) -> x509.Name:
    # X.509 allows 64 characters there, and a name of a Service with its namespace may be longer.
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:_LONGEST_COMMON_NAME])])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _date(moment: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(moment), dt.UTC)
