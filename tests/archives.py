"""What git packed of a commit, unpacked."""

import tarfile
from io import BytesIO
from pathlib import Path


def unpack(packed: bytes, folder: Path) -> None:
    """Unpack an archive that git made of a commit of this repository."""
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        archive.extractall(folder)  # noqa: S202 - what git made of our own commit
