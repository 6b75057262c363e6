"""Read ``ranges.yaml``: what each workload should take, may take, and took when it was last recorded."""

from collections.abc import Mapping
from pathlib import Path

import cattrs
import yaml

from benchmarks.catalogue import WORKLOADS, UnknownWorkloadError
from benchmarks.results import Observed, Range

PATH = Path(__file__).with_name("ranges.yaml")


def read_ranges(path: Path = PATH) -> Mapping[str, Range]:
    """Read the ranges by workload.

    Raises: UnknownWorkloadError for a workload that is not in the catalogue; a group of cattrs' errors, with the path
    of each, for a field that is unknown or not of its type.
    """
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(Observed, cattrs.gen.make_dict_structure_fn(Observed, converter))
    found = converter.structure(yaml.safe_load(path.read_text(encoding="utf-8")), dict[str, Range])
    for id_ in found:
        if id_ not in WORKLOADS:
            raise UnknownWorkloadError(id_)
    return found
