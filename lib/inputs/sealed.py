"""A folder that tells whether it is whole: a manifest of its files' sizes and hashes, and of what it was made of."""

import json
from functools import lru_cache
from pathlib import Path

from lib.inputs.registries import digest

MANIFEST = "manifest.json"


def seal(folder: Path, pin: str) -> None:
    """Write the manifest: of which `pin` the folder is made, and each file's size and SHA-256."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    members = {p.relative_to(folder).as_posix(): {"size": p.stat().st_size, "sha256": digest(p)} for p in files}
    (folder / MANIFEST).write_text(json.dumps({"pin": pin, "members": members}, indent=1), encoding="utf-8")


def is_complete(folder: Path, pin: str) -> bool:
    """Whether the folder is made of this pin and every file has its size (the hashes are for `damaged`)."""
    manifest = _manifest(folder)
    return manifest.get("pin") == pin and all(
        (folder / name).is_file() and (folder / name).stat().st_size == about["size"]
        for name, about in manifest["members"].items())


def damaged(folder: Path) -> str | None:
    """The first file of a complete folder whose hash is not the manifest's; None where all are whole."""
    for name, about in _manifest(folder)["members"].items():
        if file_hash(folder / name) != about["sha256"]:
            return name
    return None


def file_hash(path: Path) -> str:
    """SHA-256 (hex) of a file, read again only when its size or time of change is another."""
    return _hash_of(path, path.stat().st_size, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _hash_of(path: Path, size: int, changed: int) -> str:
    return digest(path)


def _manifest(folder: Path) -> dict:
    try:
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"members": {}}  # no manifest: not complete, whatever else lies there
