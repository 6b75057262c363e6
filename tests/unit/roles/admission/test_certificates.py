"""Certificates that are made here: who trusts them, for which names, and until when."""

import ssl

import pytest

from kai.basics.errors import ConfigError, InputError
from kai.roles.admission.certificates import context_of, end_of, hosts_of, make_pair, split

HOSTS = ("admission.kai-scheduler.svc", "admission.kai-scheduler.svc.cluster.local")
NOW = 1_900_000_000.0
DAY = 86400.0


def pair(now=NOW, lifetime=90 * DAY):
    return make_pair(HOSTS, now, lifetime)


def shaken(server, trusted, host=HOSTS[0]):
    """Let a client that trusts some authorities connect; return the names in the certificate that it accepted."""
    client = ssl.create_default_context(cadata="".join(trusted))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(back, there, server_hostname=host)
    answers = context_of(server).wrap_bio(there, back, server_side=True)
    ends = {False: asks, True: answers}
    for turn in range(10):
        try:
            ends[bool(turn % 2)].do_handshake()
        except ssl.SSLWantReadError:
            continue
    return [value for _, value in asks.getpeercert()["subjectAltName"]]


def current(ahead=0.0):
    import time

    return pair(time.time() + ahead)


def test_a_client_trusting_the_authority_accepts_all_host_names():
    ours = current()
    assert shaken(ours, [ours.authority]) == list(HOSTS)
    assert shaken(ours, [ours.authority], HOSTS[1])
    assert hosts_of(ours.certificate) == set(HOSTS)


def test_a_client_hours_behind_accepts_the_certificate():
    ours = current(ahead=6 * 3600.0)
    assert shaken(ours, [ours.authority]) == list(HOSTS)


def test_no_other_authority_and_no_other_name_is_accepted():
    ours, other = current(), current()
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(ours, [other.authority])
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(ours, [ours.authority], "kubernetes.default.svc")


def test_both_are_accepted_while_a_bundle_has_both_authorities():
    old, new = current(), current()
    bundle = [old.authority, new.authority]
    assert shaken(old, bundle)
    assert shaken(new, bundle)


def test_it_lasts_as_long_as_it_is_asked_to():
    assert end_of(pair().certificate) == end_of(pair().authority) == NOW + 90 * DAY


def test_the_key_of_the_authority_is_nowhere():
    ours = pair()
    assert (ours.certificate + ours.key + ours.authority).count("PRIVATE KEY-----") == 2  # begin and end of one
    assert "PRIVATE" not in repr(ours)


def test_a_bundle_is_taken_apart_and_put_together():
    texts = [pair().authority for _ in range(3)]
    assert split("".join(texts)) == tuple(texts)
    assert split("".join(text.replace("\n", "\r\n") for text in texts)) == tuple(texts)
    assert split("nonsense -----BEGIN CERTIFICATE----- and no end") == ()


@pytest.mark.parametrize("pem", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_said_in_words(pem):
    for read in (end_of, hosts_of):
        with pytest.raises(InputError, match="expected"):
            read(pem)


def test_a_certificate_with_the_key_of_another_is_refused():
    import attrs

    with pytest.raises(ConfigError, match="webhooks: certificate"):
        context_of(attrs.evolve(pair(), key=pair().key))
