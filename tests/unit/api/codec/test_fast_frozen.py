import attrs
import pytest

from kai.api.codec.pod_templates import draft_of
from kai.api.kubernetes.meta import Condition, ObjectMeta
from kai.api.kubernetes.pod import Pod, PodSpec


@pytest.mark.parametrize("cls", [ObjectMeta, Condition, Pod, PodSpec])
def test_a_draft_becomes_what_the_constructor_would_have_made(cls):
    made = draft_of(cls)()
    made.__class__ = cls
    assert made == cls()
    assert hash(made) == hash(cls())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(made, attrs.fields(cls)[0].name, None)


@attrs.frozen(weakref_slot=False)
class Strict:
    count: int = attrs.field(validator=attrs.validators.ge(1))


@attrs.frozen(weakref_slot=False)
class Doubled:
    count: int = attrs.field(converter=lambda value: 2 * value)


@attrs.frozen(weakref_slot=False)
class Afterwards:
    count: int = 1

    def __attrs_post_init__(self):
        object.__setattr__(self, "count", 2)


@attrs.frozen
class Weak:
    count: int = 1


@pytest.mark.parametrize("cls", [Strict, Doubled, Afterwards, Weak])
def test_a_class_doing_more_than_storing_has_no_draft(cls):
    assert draft_of(cls) is None
