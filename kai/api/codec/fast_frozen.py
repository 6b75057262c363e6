"""Frozen objects at the price of ordinary ones.

A frozen class keeps its own constructor from storing a field the plain way, which makes it three times as slow as that
of a class that is not frozen. Where hundreds of thousands of objects are read from JSON, that is a good part of all the
time. So they are made as drafts, of a class that has the same fields and is not frozen, and become what they are when
they are complete, before other code sees them.
"""

from __future__ import annotations

from typing import Any

import attrs


def draft_of(cls: type[Any], *, complete: bool = False) -> type[Any] | None:
    """Return a class with the fields of `cls`, whose objects may be given the class `cls`; None if there is none.

    The constructor of the returned class is that of `cls`, or, where `complete`, one that takes all fields in their
    order. A class has no draft if it can be referred to weakly, inherits fields, or does more than to store them.
    """
    fields = attrs.fields(cls)
    if hasattr(cls, "__attrs_post_init__") or any(field.converter or field.validator for field in fields):
        return None
    by_name = not complete and any(field.default is attrs.NOTHING for field in fields)
    same = {
        field.name: attrs.field(default=attrs.NOTHING if complete else field.default, kw_only=by_name)
        for field in fields
    }
    draft = attrs.make_class(f"{cls.__name__}Draft", same, slots=True, weakref_slot=False, eq=False, repr=False)
    try:
        trial: Any = object.__new__(draft)
        trial.__class__ = cls
    except TypeError:
        return None
    return draft
