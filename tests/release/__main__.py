"""Make a release of a commit, and verify it: ``python -m tests.release``, or ``--verify FOLDER --key release.pub``.

    git archive COMMIT ─┬─ build ─┐
                        └─ build ─┴─ equal bits ─ bills of materials ─ image, if built ─ statement ─ signatures ─ verify

The key is named by the environment (`tests/release/signing.py`); ``--throw-away-key`` makes one to try the way.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.image import building, contents
from tests.release import packages, provenance, signing

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILDER = "KAI_BUILDER_ID"
_UNNAMED = "urn:kai:builder:unnamed"


def main() -> int:
    """Do what the command line asks for; 1 if the release cannot be made, or is not what it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="HEAD", help="what is released; changes that are not committed are not")
    parser.add_argument("--folder", type=Path, default=packages.ROOT / "build" / "release", help="where it is written")
    parser.add_argument("--throw-away-key", action="store_true", help="sign with a key that is forgotten at once")
    parser.add_argument("--verify", type=Path, metavar="FOLDER", help="only verify the release in a folder")
    parser.add_argument("--key", type=Path, help="with --verify: the file with the public key")
    arguments = parser.parse_args()
    try:
        if arguments.verify is not None:
            if arguments.key is None:
                parser.error("--verify: expected --key as well, the file with the public key")
            _tell(arguments.verify, arguments.key.read_bytes())
        elif arguments.throw_away_key:
            with tempfile.TemporaryDirectory() as work:
                address = signing.make_key(Path(work) / "key.pem")
                release(arguments.commit, arguments.folder, {**os.environ, signing.SIGNING: address})
        else:
            release(arguments.commit, arguments.folder, os.environ)
    except (packages.ReleaseError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def release(revision: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Build, state, sign and verify a release in ``folder``, which is emptied first; costs about 20 s of processor.

    Raises: ReleaseError, and then nothing in the folder may be published.
    """
    environment = {name: value for name, value in environment.items() if name != signing.VERIFYING or value}
    key, public = signing.signer(environment)
    shutil.rmtree(folder, ignore_errors=True)
    commit, epoch = packages.commit_of(revision)
    files = packages.build(commit, epoch, folder)
    pins = packages.git("show", f"{commit}:requirements/runtime.txt").decode()
    files.append(contents.write(folder, "wheel", contents.bill(contents.pinned(pins), "application")))
    files += _image(folder)
    document = provenance.statement(files, commit, epoch, environment.get(BUILDER, _UNNAMED), root=packages.ROOT)
    signing.sign(folder, document, key)
    (folder / signing.PUBLIC).write_bytes(public)
    _tell(folder, public)


def _image(folder: Path) -> list[Path]:
    """Return the image as an archive of OCI with its bill of materials, where it is built."""
    try:
        building.configuration()
    except (building.CannotBuildError, OSError):
        sys.stderr.write("the image is not built, so it is no part of the release; `nox -s image` builds it\n")
        return []
    archive = folder / f"kai-{building.VERSION}-image.oci.tar"
    building.buildah("push", building.IMAGE, f"oci-archive:{archive}:{building.VERSION}")
    with building.unpacked() as root:
        bill = contents.write(folder, "image", contents.bill(contents.installed(root), "container"))
    return [archive, bill]


def _tell(folder: Path, public: bytes) -> None:
    commit = signing.verify(folder, public)
    for path in sorted(folder.iterdir()):
        sys.stdout.write(f"{provenance.sha256(path)[:16]} {path.stat().st_size:>12,} {path.name}\n")
    sys.stdout.write(f"verified: signatures, hashes and provenance of commit {commit}\n")


if __name__ == "__main__":
    sys.exit(main())
