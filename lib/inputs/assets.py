"""Fetch and verify the pinned downloads of data/assets.toml.

    python -m lib.inputs.assets [--verify] [name ...]

An asset is a folder data/cache/assets/<name>/ that holds only the members it needs and a manifest with their
hashes. It is made under a temporary name and moved as a whole: a folder that exists is complete.
"""

import argparse
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path

from lib import lock
from lib.errors import AssetError, InputError
from lib.inputs import registries, sealed
from lib.paths import CACHE, DATA


@cache
def _pins() -> dict[str, dict]:
    return tomllib.loads((DATA / "assets.toml").read_text(encoding="utf-8"))


def names() -> tuple[str, ...]:
    """Every asset there is."""
    return tuple(name for name in _pins() if name != "hub")


def hub(name: str) -> dict[str, str]:
    """The pin of a dataset on the hub: path, revision, licence."""
    return _pins()["hub"][name]


def _asset(name: str) -> dict:
    if name not in names():
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
    return sealed.is_complete(folder(name), pin(name))


def verify(name: str) -> None:
    """Raise AssetError naming the first member that is missing or whose hash is not the manifest's."""
    again = f"run `python -m lib.inputs.assets {name}`"
    if not is_complete(name):
        raise AssetError(f"asset {name} is not complete in {folder(name)}; {again}")
    member = sealed.damaged(folder(name))
    if member:
        raise AssetError(f"asset {name}: {member} in {folder(name)} is damaged (its sha256 is not the one it was "
                         f"stored with); {again}")


def fetch(name: str) -> Path:
    """The asset's folder, its hashes checked once a process; downloaded where it is not complete or is damaged.
    Raises AssetError when that fails."""
    target = folder(name)
    if _is_sound(name):
        return target
    if is_complete(name):
        print(f"{target / sealed.damaged(target)} is damaged, so {name} is fetched again", file=sys.stderr, flush=True)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock.held(target.parent / f".lock-{name}", f"asset {name}", wait=True):
            if not _is_sound(name):  # another process may have made it while this one waited
                _make(name, target)
    except OSError as error:
        what = f"asset {name} cannot be written into {target.parent}: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            what = f"the disk is full while fetching {name} into {target.parent}; free some space (all assets need " \
                   "about 1 GB while they are made; data/cache may be a symbolic link to a bigger disk)"
        raise AssetError(f"{what}. Nothing half is kept; run the same command again") from error
    return target


def _is_sound(name: str) -> bool:
    return is_complete(name) and sealed.damaged(folder(name)) is None


def _make(name: str, target: Path) -> None:
    """Download, extract, join, seal, and move into place whatever lies there. The caller holds the lock."""
    asset = _asset(name)
    print(f"fetching {name}: {asset['origin']} (licence: {asset['licence']})", file=sys.stderr, flush=True)
    for stale in target.parent.glob(f".part-{name}-*"):  # of a process that was killed; its pip may still write
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".part-{name}-") as place:
        made = Path(place, "asset")
        made.mkdir()
        for number, file in enumerate(asset["files"], 1):
            print(f"  {number}/{len(asset['files'])}  {file['package']}", file=sys.stderr, flush=True)
            archive = registries.download(asset["registry"], file["package"], file["sha256"], Path(place),
                                          asset.get("platform"))
            registries.extract(archive, file["members"], made, file.get("keep_tree", False))
            archive.unlink()
        if "join" in asset:
            _join(name, made, asset)
        sealed.seal(made, pin(name))
        if target.exists():
            os.replace(target, Path(place, "old"))
        os.replace(made, target)


def _join(name: str, made: Path, asset: dict) -> None:
    """Concatenate the parts of a file in the order of their names and check the whole."""
    parts = sorted(made.glob(asset["join"] + ".part*"))
    with (made / asset["join"]).open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, out)
            part.unlink()
    if registries.digest(made / asset["join"]) != asset["sha256"]:
        raise AssetError(f"{asset['join']} of asset {name} does not have the pinned sha256 once its parts are joined")


def main(words: list[str] | None = None) -> int:
    """Fetch (or verify) the named assets, all by default; exit code 0, 1 (failed) or 2 (unknown name)."""
    parser = argparse.ArgumentParser(prog="python -m lib.inputs.assets", description="fetch the pinned downloads")
    parser.add_argument("--verify", action="store_true", help="check the hash of every member, download nothing")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args(words)
    try:
        for name in arguments.names or names():
            verify(name) if arguments.verify else fetch(name)
            print(f"{name}: {folder(name)} (licence: {_asset(name)['licence']})", flush=True)
    except (AssetError, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        print("error: interrupted; nothing half is kept, run the same command again", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
