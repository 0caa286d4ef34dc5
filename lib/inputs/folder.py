"""Your own text: a folder of <language>.txt, .jsonl or .parquet files."""

import hashlib
import json
from functools import cache
from pathlib import Path

from lib.errors import InputError
from lib.inputs import text

KINDS = (".txt", ".jsonl", ".parquet")
SPLITS = ("calibration", "evaluation", "parallel")
HELP = ("a text folder holds <language>.txt (a segment a line), <language>.jsonl (field text, and id if you like) or "
        "<language>.parquet (column text, id if you like), at its top or under calibration/, evaluation/, parallel/")


def known(folder: Path, split: str) -> tuple[str, ...]:
    """Languages that the folder has a file for."""
    return tuple(sorted(_files(_place(folder, split))))


def splits(folder: Path) -> tuple[str, ...]:
    """The subfolders that are there, or all splits of a folder without subfolders."""
    there = tuple(split for split in SPLITS if (folder / split).is_dir())
    return there or SPLITS


def fingerprint(folder: Path) -> str:
    """SHA-256 (hex) over the names and contents of the text files; they are read again only when they change."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in KINDS)
    return _digest(folder, tuple((p.relative_to(folder).as_posix(), p.stat().st_size, p.stat().st_mtime_ns)
                                 for p in files))


@cache
def _digest(folder: Path, files: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in files:
        digest.update(name.encode() + b"\0" + (folder / name).read_bytes() + b"\0")
    return digest.hexdigest()


def rows(folder: Path, language: str, split: str) -> list[tuple[str, str]]:
    """(id, text) of a split, in hash order of the ids.

    Files with ids, or with the same number of lines, are parallel: an id is in the same split in every language,
    and drops out of all when its text in one of them stood there before; an empty line is a translation that is
    missing. Files that are not parallel are split by their text. 70 % of the ids are calibration, 20 % evaluation,
    10 % parallel. Where subfolders are the splits, text that stands in two of them stays in the first of
    evaluation, parallel, calibration. Raises InputError for files that cannot be read and for an empty split.
    """
    place = _place(folder, split)
    sides, parallel = _sides(place)
    kept = _without_repeats(sides if parallel else {language: sides[language]})
    side = sides[language]
    if place == folder:
        kept = [i for i in kept if _split_of(i if parallel else side[i]) == split]
    elsewhere = _before(folder, language, split)
    prefix = "" if parallel else f"{language}:"
    found = [(prefix + i, side[i]) for i in kept if side.get(i) and side[i] not in elsewhere]
    if not found:
        raise InputError(f"the {split} part of {folder} holds no text in {language!r}; {HELP}")
    return found


def _split_of(key: str) -> str:
    place = text.share(key)
    return "calibration" if place < 0.7 else "evaluation" if place < 0.9 else "parallel"


def _sides(place: Path) -> tuple[dict[str, dict[str, str]], bool]:
    """(language -> id -> text, whether an id is the same content in every language)."""
    read = {language: _read(path) for language, path in _files(place).items()}
    sides = {language: side for language, (side, _) in read.items()}
    have_ids = all(have for _, have in read.values())
    return sides, have_ids or len({frozenset(side) for side in sides.values()}) == 1


def _without_repeats(sides: dict[str, dict[str, str]]) -> list[str]:
    """Ids in hash order, without those of which a side stood there before."""
    seen, kept = {language: set() for language in sides}, []
    for i in text.order(list(set().union(*sides.values()))):
        there = {language: side[i] for language, side in sides.items() if side.get(i)}
        if not any(t in seen[language] for language, t in there.items()):
            kept.append(i)
            for language, t in there.items():
                seen[language].add(t)
    return kept


def _before(folder: Path, language: str, split: str) -> set[str]:
    """Texts of the language in the subfolders that keep what this split has too."""
    order = ("evaluation", "parallel", "calibration")
    if not (folder / split).is_dir():
        return set()
    places = [folder / other for other in order[:order.index(split)] if (folder / other).is_dir()]
    paths = [files[language] for files in map(_files, places) if language in files]
    return {t for path in paths for t in _read(path)[0].values()}


def _place(folder: Path, split: str) -> Path:
    """The folder to read: the split's own, else the whole."""
    return folder / split if (folder / split).is_dir() else folder


def _files(place: Path) -> dict[str, Path]:
    """Language -> its file."""
    found = sorted(p for p in place.iterdir() if p.suffix in KINDS and p.is_file())
    if not found:
        raise InputError(f"{place} holds no text; {HELP}")
    files = {path.stem: path for path in found}
    if twice := {path for path in found if files[path.stem] != path}:
        raise InputError(f"{place} has more than one file for a language: {', '.join(sorted(p.name for p in twice))} "
                         "and another of that name; keep one")
    return files


def _read(path: Path) -> tuple[dict[str, str], bool]:
    """(id -> text, whether the ids are the file's own; else they are line numbers from 1). Empty lines stay."""
    try:
        records = _records(path)
    except (ValueError, OSError) as error:  # what does not decode, or is no parquet, is a ValueError
        raise InputError(f"{path} cannot be read ({error}); text is UTF-8, and {HELP}") from None
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise InputError(f"{path}, record {number}: no text in it; {HELP}")
    have_ids = any("id" in record for record in records)
    if have_ids and not all("id" in record for record in records):
        raise InputError(f"{path} has ids in some of its records only; give all of them one, or none")
    ids = [str(record["id"]) if have_ids else str(number) for number, record in enumerate(records, 1)]
    if len(set(ids)) != len(ids):
        raise InputError(f"{path} has an id twice; ids name a segment and are the same in every language")
    return {i: text.clean(record["text"]) for i, record in zip(ids, records, strict=True)}, have_ids


def _records(path: Path) -> list:
    """Records as they stand in the file. Lines end in a line feed and nothing else: other characters that Unicode
    counts as line ends may stand inside a segment."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    lines = path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
    if path.suffix == ".txt":
        return [{"text": line} for line in lines]
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None
    return records
