"""Loading a path: a scenario, manifests in a file or folder, or a snapshot of kai's or the peer's.

Parsers of text are imported only for text: a snapshot needs neither YAML nor the rules of the pod grouper.
"""

from typing import TYPE_CHECKING

import attrs

from kai.answers.cases.case import Case, FairShareCase
from kai.answers.cases.files import STANDARD_INPUT, declare_kinds, place_of, sum_of, unread
from kai.answers.cases.origin import Origin
from kai.deciding.configuration.registry import Registry
from kai.lab.sources.archive import is_archive, read_archive

if TYPE_CHECKING:
    from kai.manifests.adoption import Adoption


def read_case(path: str, registry: Registry | None = None, adoption: "Adoption | None" = None) -> Case | FairShareCase:
    """Return the case at ``path``, with the workloads of other schedulers that ``adoption`` takes over.

    For text, the kinds that plugins of ``registry`` read are declared first. A snapshot has no objects of them.

    Raises: InputError or ConfigError that names the file, the object and the field.
    """
    place = place_of(path)
    try:
        if path != STANDARD_INPUT and place.is_file() and is_archive(place):
            origin = Origin(type="snapshot", sha256=sum_of([place.read_bytes()]))
            case = attrs.evolve(read_archive(place, path), origin=origin)
            return case if adoption is None else _with_adopted(case, adoption)
    except OSError as error:
        raise unread(path, error) from None
    from kai.lab.sources import text_files

    if registry is not None:
        declare_kinds(registry)
    return text_files.read_at(place, path) if adoption is None else text_files.read_at(place, path, adoption)


def _with_adopted(case: Case, adoption: "Adoption") -> Case:
    from kai.lab.sources.adopting import with_adopted

    return with_adopted(case, adoption)
