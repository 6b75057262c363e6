"""The steps of a renewal: which one is due when, and what the Secret holds after it."""

import attrs
import pytest

from kai.roles.admission.certificates import end_of, make_pair
from kai.roles.admission.rotation import Held, Rotation, Step, Timing, patch_of, read_held

HOSTS = ("admission.kai-scheduler.svc",)
NOW = 1_900_000_000.0
DAY = 86400.0
TIMING = Timing()
ROTATION = Rotation(hosts=HOSTS)


def done(held, now, *, is_trusted=True, rotation=ROTATION):
    """Return the step that is due, and what is held after it."""
    return rotation.step(held, now, is_trusted=is_trusted) or (None, held)


def begun():
    return done(Held(), NOW)[1]


def test_times_follow_from_how_long_a_certificate_lasts():
    assert (TIMING.renew_before, TIMING.pause, TIMING.overlap, TIMING.look) == (30 * DAY, 300, 3600, 30)
    short = Timing(lifetime=24)
    assert (short.renew_before, short.overlap) == (8, 4)
    assert short.look * 4 <= short.pause < short.renew_before


def test_where_there_is_nothing_a_pair_is_made():
    step, held = done(Held(), NOW)
    assert step is Step.MAKE
    assert end_of(held.serving.certificate) == NOW + TIMING.lifetime
    assert held.bundle == (held.serving.authority,)
    assert done(held, NOW)[0] is None


def test_each_step_of_a_renewal_waits_for_the_last():
    first = begun()
    due = NOW + TIMING.lifetime - TIMING.renew_before
    assert done(first, due - 10)[0] is None
    step, introduced = done(first, due)
    assert step is Step.INTRODUCE
    assert introduced.serving == first.serving
    assert introduced.bundle == (first.serving.authority, introduced.following.authority)

    assert done(introduced, due + TIMING.pause - 1)[0] is None
    assert done(introduced, due + TIMING.pause, is_trusted=False)[0] is None
    step, promoted = done(introduced, due + TIMING.pause)
    assert step is Step.PROMOTE
    assert (promoted.serving, promoted.following) == (introduced.following, None)
    assert promoted.bundle == introduced.bundle

    begun_at = due + TIMING.pause
    assert done(promoted, begun_at + TIMING.overlap - 1)[0] is None
    step, retired = done(promoted, begun_at + TIMING.overlap)
    assert step is Step.RETIRE
    assert retired.bundle == (promoted.serving.authority,)
    assert done(retired, begun_at + TIMING.overlap)[0] is None


def test_a_pair_renewed_too_late_is_replaced_at_once():
    first = begun()
    late = NOW + TIMING.lifetime - TIMING.pause
    step, held = done(first, late)
    assert step is Step.MAKE
    assert held.bundle == (first.serving.authority, held.serving.authority)
    _, much_later = done(first, NOW + 2 * TIMING.lifetime)
    assert much_later.bundle == (much_later.serving.authority,)


def test_an_ending_pair_yields_to_an_untrusted_next():
    first = begun()
    introduced = done(first, NOW + TIMING.lifetime - TIMING.renew_before)[1]
    step, held = done(introduced, NOW + TIMING.lifetime - TIMING.pause, is_trusted=False)
    assert step is Step.PROMOTE
    assert held.serving == introduced.following


def test_a_pair_for_other_names_is_replaced():
    held = attrs.evolve(begun(), serving=make_pair(("elsewhere.svc",), NOW, TIMING.lifetime))
    assert done(held, NOW)[0] is Step.MAKE


def test_a_pair_made_by_a_clock_ahead_is_replaced():
    held = attrs.evolve(begun(), serving=make_pair(HOSTS, NOW + 3 * DAY, TIMING.lifetime))
    step, mended = done(held, NOW)
    assert step is Step.MAKE
    assert done(mended, NOW)[0] is None


def test_a_bundle_that_was_changed_by_hand_is_mended():
    held = begun()
    for bundle in ((), (held.serving.authority, make_pair(HOSTS, NOW, DAY).authority)):
        step, mended = done(attrs.evolve(held, bundle=bundle), NOW + TIMING.overlap)
        assert step is Step.RETIRE
        assert mended.bundle == (held.serving.authority,)


def merged(secret, patch):
    data = {**secret.get("data", {}), **patch["data"]}
    return {"metadata": patch["metadata"], "data": {name: text for name, text in data.items() if text is not None}}


def test_what_is_written_into_a_secret_is_read_back():
    held = begun()
    introduced = done(held, NOW + TIMING.lifetime - TIMING.renew_before)[1]
    secret = merged({}, patch_of(held, "7"))
    assert read_held(secret) == held
    assert secret["metadata"]["resourceVersion"] == "7"
    secret = merged(secret, patch_of(introduced, "8"))
    assert read_held(secret) == introduced
    secret = merged(secret, patch_of(held, "9"))
    assert read_held(secret) == held
    assert not any(name.startswith("next.") for name in secret["data"])


@pytest.mark.parametrize(
    "secret",
    [
        {},
        {"data": None, "metadata": {"annotations": None}},
        {"data": {"tls.crt": "", "tls.key": "", "ca.crt": ""}},
        {"data": {"tls.crt": "%%%", "tls.key": "/w==", "tls.authority": 3, "ca.crt": "%"}},
        {"data": {"tls.crt": "YQ==", "tls.key": "YQ==", "tls.authority": "YQ==", "ca.crt": "YQ=="}},
        {"metadata": {"annotations": {"kai.scheduler/certificate-introduced": "9" * 400}}},
    ],
)
def test_any_secret_without_a_valid_certificate_gets_one(secret):
    held = read_held(secret)
    assert (held.introduced, held.bundle) == (0.0, ())
    assert done(held, NOW)[0] is Step.MAKE


def test_unreadable_authorities_are_dropped_from_the_bundle():
    junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    held = done(Held(bundle=(junk,)), NOW)[1]
    assert held.bundle == (held.serving.authority,)
