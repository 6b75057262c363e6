import typing

import attrs
import pytest

from kai.api.crds.definitions import PRESENTATIONS
from kai.api.crds.openapi import EXPLANATIONS


def classes_of_ours(hint):
    """Yield the classes below a kind that are declared beside it, which are those whose every field is ours."""
    own = {cls.__module__ for cls in PRESENTATIONS} | {"kai.api.kubernetes.meta"}
    if isinstance(hint, type) and attrs.has(hint) and hint.__module__ in own and hint.__name__ != "ObjectMeta":
        yield hint
        for inner in typing.get_type_hints(hint, include_extras=True).values():
            yield from classes_of_ours(inner)
    for part in typing.get_args(hint):
        yield from classes_of_ours(part)


CLASSES = sorted({cls for kind in PRESENTATIONS for cls in classes_of_ours(kind)}, key=lambda cls: cls.__name__)


def is_class(hint):
    parts = [part for part in typing.get_args(hint) if part is not type(None)] or [hint]
    return len(parts) == 1 and attrs.has(parts[0])


@pytest.mark.parametrize("cls", CLASSES)
def test_every_field_is_explained_unless_its_class_explains_it(cls):
    hints = typing.get_type_hints(cls, include_extras=True)
    plain = {name for name, hint in hints.items() if not is_class(hint)}
    assert plain == EXPLANATIONS.get(cls, {}).keys()


@pytest.mark.parametrize("cls", EXPLANATIONS)
def test_nothing_is_explained_that_does_not_exist(cls):
    assert cls in CLASSES
    assert EXPLANATIONS[cls].keys() <= {field.name for field in attrs.fields(cls)}


@pytest.mark.parametrize("cls", EXPLANATIONS)
def test_an_explanation_is_a_sentence(cls):
    assert all(sentence.endswith(".") for sentence in EXPLANATIONS[cls].values())
