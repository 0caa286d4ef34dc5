"""Your own text: a folder of <language>.txt, .jsonl or .parquet files."""

import hashlib
import json
from pathlib import Path

from lib.errors import InputError
from lib.inputs import text

KINDS = (".txt", ".jsonl", ".parquet")
SPLITS = ("calibration", "evaluation", "parallel")
HELP = ("a text folder holds <language>.txt (a segment a line), <language>.jsonl (field text, and id if you like) or "
        "<language>.parquet (column text, id if you like), at its top or under calibration/, evaluation/, parallel/")


def known(folder: Path, split: str) -> tuple[str, ...]:
    """Languages that the folder has a file for."""
    return tuple(sorted({path.stem for path in _files(_place(folder, split)[0])}))


def splits(folder: Path) -> tuple[str, ...]:
    """The subfolders that are there, or all splits of a folder without subfolders."""
    there = tuple(split for split in SPLITS if (folder / split).is_dir())
    return there or SPLITS


def fingerprint(folder: Path) -> str:
    """SHA-256 (hex) over the names and contents of the text files."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in KINDS):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def rows(folder: Path, language: str, split: str) -> list[tuple[str, str]]:
    """(id, text) of a split, in hash order of the ids.

    Files with the same ids (or, without ids, the same number of lines) are parallel: an id is in the same split
    in every language, and drops out of all when its text in one of them stood there before. Files that are not
    parallel are split by their text. 70 % of the ids are calibration, 20 % evaluation, 10 % parallel.
    """
    place, is_split = _place(folder, split)
    sides = {path.stem: _read(path) for path in _files(place)}
    parallel = len({frozenset(side) for side in sides.values()}) == 1
    if parallel:
        kept = _without_repeats(sides)
    else:
        kept = _without_repeats({language: sides[language]})
    side = sides[language]
    if not is_split:
        kept = [i for i in kept if _split_of(i if parallel else side[i]) == split]
    if not kept:
        raise InputError(f"the {split} part of {folder} holds no text in {language!r}; {HELP}")
    prefix = "" if parallel else f"{language}:"
    return [(prefix + i, side[i]) for i in kept]


def _split_of(key: str) -> str:
    place = text.share(key)
    return "calibration" if place < 0.7 else "evaluation" if place < 0.9 else "parallel"


def _without_repeats(sides: dict[str, dict[str, str]]) -> list[str]:
    """Ids in hash order, without those of which a side stood there before."""
    seen, kept = {language: set() for language in sides}, []
    for i in text.order(list(next(iter(sides.values())))):
        if all(side[i] not in seen[language] for language, side in sides.items()):
            kept.append(i)
            for language, side in sides.items():
                seen[language].add(side[i])
    return kept


def _place(folder: Path, split: str) -> tuple[Path, bool]:
    """(folder to read, whether it holds this split alone)."""
    if (folder / split).is_dir():
        return folder / split, True
    return folder, False


def _files(place: Path) -> list[Path]:
    found = sorted(p for p in place.iterdir() if p.suffix in KINDS and p.is_file())
    if not found:
        raise InputError(f"{place} holds no text; {HELP}")
    return found


def _read(path: Path) -> dict[str, str]:
    """id -> text; ids are those of the file, else line numbers from 1. Empty lines keep their number."""
    if path.suffix == ".txt":
        records = [{"text": line} for line in path.read_text().splitlines()]
    elif path.suffix == ".jsonl":
        records = _json_lines(path)
    else:
        import pyarrow.parquet as pq

        records = pq.read_table(path).to_pylist()
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise InputError(f"{path}, record {number}: no text in it; {HELP}")
    texts = [(str(record.get("id", number)), text.clean(record["text"])) for number, record in enumerate(records, 1)]
    if len({i for i, _ in texts}) != len(texts):
        raise InputError(f"{path} has an id twice; ids name a segment and are the same in every language")
    return {i: t for i, t in texts if t}


def _json_lines(path: Path) -> list:
    records = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise InputError(f"{path}, line {number} is not JSON ({error}); {HELP}") from None
    return records
