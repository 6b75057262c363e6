"""Cases from text: scenarios and manifests in a file, in a folder or on standard input, distinguished by content."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from kai.answers.cases.case import Case, FairShareCase, newest_time, with_claims_of_templates
from kai.answers.cases.files import STANDARD_INPUT, SUFFIXES, files_below, place_of, read_standard_input, sum_of, unread
from kai.answers.cases.origin import Origin
from kai.api.cluster_objects import collect
from kai.api.codec.manifest_text import load_values
from kai.basics.errors import InputError
from kai.basics.wording import found_by
from kai.deciding.configuration.profile_reading import default_configuration
from kai.intake import IntakeSettings
from kai.lab.scenarios.scenario import is_scenario, read_scenario
from kai.lab.sources.archive import is_archive
from kai.lab.sources.judging import judge
from kai.manifests import Document, Finding, RefusedError, Surroundings, documents_of, open_text
from kai.manifests.adoption import NONE, Adoption, adopted_documents, says_queues
from kai.manifests.proposals import sources_of_queues
from kai.manifests.workloads.table import describes_pods


@attrs.frozen(kw_only=True)
class Texts:
    """The manifests of some texts, and the faults of unreadable ones."""

    documents: tuple[Document, ...]
    texts: tuple[bytes, ...] = ()
    findings: tuple[Finding, ...] = ()


def find_cases(path: str) -> Iterator[str]:
    """Yield the paths of the cases at ``path``: itself, or every scenario file of a folder that holds scenarios.

    A folder of manifests is one case.

    Raises: InputError when there is nothing to read.
    """
    place = place_of(path)
    if path == STANDARD_INPUT or not place.is_dir():
        yield path
        return
    files = _files(place, path)
    # The first file decides, since a folder holds one kind of input; a mix is refused when it is read.
    if is_scenario(_first_document(files[0])):
        yield from (str(file) for file in files)
    else:
        yield path


def read_at(place: Path, path: str, adoption: Adoption = NONE) -> Case | FairShareCase:
    """Return the case in the texts at ``place``, named ``path`` in messages; ``adoption`` changes manifests.

    Raises: InputError or ConfigError that names the file, the object and the field.
    """
    if path == STANDARD_INPUT:
        return _read_text(read_standard_input(), path, adoption)
    if place.is_dir():
        return _manifests(_texts_in(place, path), path, place.resolve().name, adoption)
    try:
        return _read_text(place.read_bytes(), path, adoption)
    except OSError as error:
        raise unread(path, error) from None


def _read_text(text: bytes, name: str, adoption: Adoption) -> Case | FairShareCase:
    source, values = open_text(text, name)
    if len(values) == 1 and is_scenario(values[0]):
        if adoption.schedulers or adoption.queue_from:
            raise InputError(f"{name}: found a scenario, whose pods and queues are kai's own, expected manifests")
        return attrs.evolve(read_scenario(values[0], name), origin=Origin(type="scenario", sha256=sum_of([text])))
    if any(is_scenario(value) for value in values):
        raise InputError(f"{name}: found {len(values)} documents with a scenario among them, expected one a file")
    if not values:
        raise InputError(f"{name}: found nothing, expected a scenario or Kubernetes objects")
    documents = documents_of(source, values)
    if not documents:
        raise InputError(f"{name}: found a list without items, expected Kubernetes objects")
    return _manifests(Texts(documents=tuple(documents), texts=(text,)), name, Path(name).stem, adoption)


def _texts_in(folder: Path, name: str) -> Texts:
    """Return the manifests of a folder. Unreadable texts are left out, each with a finding.

    Raises: RefusedError where none can be read, InputError for a file that is missing or has other content.
    """
    documents: list[Document] = []
    texts: list[bytes] = []
    refused: list[Finding] = []
    for file in _files(folder, name):
        try:
            texts.append(file.read_bytes())
            source, values = open_text(texts[-1], str(file))
            found = documents_of(source, values)
        except OSError as error:
            raise InputError(f"{file}: found {found_by(error)}, expected a readable file") from None
        except RefusedError as error:
            # Bad files of a folder are left out and named: one broken manifest must not hide what the others would do.
            refused += error.findings
            continue
        if any(is_scenario(document.manifest) for document in found):
            if documents or len(_files(folder, name)) > 1:
                raise InputError(f"{file}: found a scenario, expected Kubernetes objects as in the rest of {name}")
            raise InputError(f"{name}: found a folder with one scenario, expected the scenario itself: {file}")
        documents += found
    if refused and not documents:
        raise RefusedError(refused)
    return Texts(documents=tuple(documents), texts=tuple(texts), findings=tuple(refused))


def read_documents(path: str, *, elsewhere: str = "--from") -> Texts:
    """Return the manifests at ``path``: a file, a folder, or standard input.

    ``elsewhere`` is the option for snapshots, which the error for one names.

    Raises: RefusedError for unreadable texts, InputError where there are no manifests.
    """
    place = place_of(path)
    try:
        if place.is_dir() and path != STANDARD_INPUT:
            found = _texts_in(place, path)
        elif path != STANDARD_INPUT and is_archive(place):
            raise InputError(f"{path}: found a snapshot, expected manifests; a snapshot is given with {elsewhere}")
        else:
            text = read_standard_input() if path == STANDARD_INPUT else place.read_bytes()
            found = Texts(documents=tuple(documents_of(*open_text(text, path))))
    except OSError as error:
        raise unread(path, error) from None
    if not found.documents:
        raise InputError(f"{path}: found nothing, expected Kubernetes objects")
    return found


def _files(folder: Path, name: str) -> Sequence[Path]:
    try:
        found = files_below(folder)
    except OSError as error:
        raise unread(error.filename or name, error) from None
    if not found:
        raise InputError(f"{name}: found no file that ends in {', '.join(SUFFIXES)}, expected manifests or scenarios")
    return found


def _first_document(file: Path) -> object:
    """Return the first document of a file; None if unreadable, because reading the folder gives a better error."""
    try:
        return next(iter(load_values(file.read_bytes(), str(file))), None)
    except (OSError, InputError):
        return None


def _manifests(found: Texts, name: str, title: str, adoption: Adoption) -> Case:
    taken, proposals, notes = adopted_documents(found.documents, adoption)
    judged = judge(taken, Surroundings(scheduler_name=adoption.ours, operators=adoption.operators))
    nothing = RefusedError.of(judged.findings)
    if nothing is not None and not judged.reading.documents and not judged.refused:
        raise nothing
    reading = judged.reading
    objects = with_claims_of_templates(collect(reading.objects))
    configuration = default_configuration()
    parameters = attrs.evolve(configuration.parameters, scheduler_name=adoption.ours)
    return Case(
        name=name,
        title=title,
        objects=objects,
        # Not the clock: the same files give the same decisions tomorrow.
        now=newest_time(objects),
        configuration=attrs.evolve(configuration, parameters=parameters),
        settings=IntakeSettings(scheduler_name=adoption.ours),
        unused=tuple(each for each in reading.expansion.unused if not says_queues(each.kind, adoption)),
        workloads=reading.expansion.workloads,
        owners=reading.expansion.owners,
        findings=(*found.findings, *judged.findings),
        about=judged.about,
        refused=judged.refused,
        templates=tuple(each.manifest for each in found.documents if describes_pods(each.manifest)),
        adopted=notes,
        proposals=proposals,
        queue_sources=sources_of_queues(each.manifest for each in found.documents) if adoption.queue_from else (),
        origin=Origin(type="manifests", sha256=sum_of(found.texts)),
    )
