"""Text from the hub through `datasets`: streamed, the first documents only, kept in the cache as parquet."""

from dataclasses import dataclass
from pathlib import Path

from lib.errors import AssetError, InputError
from lib.inputs import languages, text
from lib.paths import CACHE

EVALUATION_CHARACTERS = 2000  # a document's start: as a segment it fits into any model's context


@dataclass(frozen=True)
class Source:
    """One hub dataset. `{code}` in a pattern or configuration is the language's code there."""

    name: str
    path: str  # hub id, or a local folder of the same layout
    revision: str
    licence: str
    known: tuple[str, ...]
    files: dict[str, str]  # our split -> pattern of data files; empty: the dataset's own configurations
    split: str  # of the dataset, for every split of ours
    configuration: str | None = None
    documents: int = 2000  # read per language and split
    parallel: bool = False  # rows of all languages are translations of each other


# `revision` is "main" until a commit can be verified against the hub; rows carry the digest of the text read.
SOURCES = {
    "mc4": Source("mc4", "allenai/c4", "main", "ODC-BY", languages.PAPER, {
        "calibration": "multilingual/c4-{code}.*.json.gz",
        "evaluation": "multilingual/c4-{code}-validation.*.json.gz"}, "train"),
    "ntrex": Source("ntrex", "mteb/NTREX", "main", "CC-BY-SA-4.0", languages.PAPER,
                    {"evaluation": "", "parallel": ""}, "test", parallel=True),
    "hellaswag": Source("hellaswag", "alexandrainst/m_hellaswag", "main", "CC-BY-NC-4.0",
                        ("ar", "de", "es", "fr", "hi", "ru"), {"calibration": ""}, "val", configuration="{code}"),
}


def splits(source: Source) -> tuple[str, ...]:
    """Our splits that the source has."""
    return tuple(source.files)


def fingerprint(source: Source) -> str:
    """Identity of the text as far as it is known without reading it."""
    return f"{source.path}@{source.revision}:{source.documents}"


def rows(source: Source, language: str, split: str) -> list[tuple[str, str]]:
    """(id, text): the first documents of a split, in hash order of the ids.

    Parallel text is split by a hash of its row number, evaluation getting 40 %, so that no content stands in
    two splits. Raises AssetError when the hub cannot be reached or does not have what was asked for.
    """
    if language not in source.known:
        raise InputError(f"{source.name} has no text in {language!r}; it has {', '.join(source.known)}")
    found = {i: t for i, t in _kept(source, language, split)
             if not source.parallel or (text.share(i) < 0.4) == (split == "evaluation")}
    return [(i, found[i]) for i in text.order(list(found))]


def _kept(source: Source, language: str, split: str) -> list[tuple[str, str]]:
    """The documents from the cache, read from the hub first if they are not there."""
    from datasets import Dataset

    place = Path(source.path)
    if place.is_dir():
        return list(_stream(source, language, split))
    name = f"{source.name}-{source.revision}-{language}-{split}-{source.documents}.parquet".replace("/", "-")
    path = CACHE / "corpora" / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        ids, texts = zip(*_stream(source, language, split), strict=True)
        temporary = path.with_suffix(".part")
        Dataset.from_dict({"id": ids, "text": texts}).to_parquet(temporary)
        temporary.replace(path)
    data = Dataset.from_parquet(str(path), keep_in_memory=True)
    return list(zip(data["id"], data["text"], strict=True))


def _stream(source: Source, language: str, split: str):
    """(row number, text) of the first documents."""
    from datasets import load_dataset

    code = languages.external(source.name, language)
    pattern = source.files[split].format(code=code)
    where = {"data_files": {source.split: pattern}} if pattern else {}
    local = Path(source.path).is_dir()
    try:
        stream = load_dataset(
            source.path, source.configuration.format(code=code) if source.configuration else None, streaming=True,
            split=source.split, **where, **({} if local else {"revision": source.revision}))
        for number, record in zip(range(source.documents), stream, strict=False):
            yield str(number), text.clean(_text(source, record, code))[: _limit(split)]
    except (OSError, ValueError, KeyError) as error:
        raise AssetError(f"{source.name} ({source.path}, {language}, {split}) cannot be read from the hub: {error}. "
                         f"Check the network, or run `hf download --repo-type dataset {source.path}` where there is one"
                         ) from error


def _text(source: Source, record: dict, code: str) -> str:
    if source.name == "hellaswag":
        return f"{record['ctx']} {record['endings'][int(record['label'])]}"
    return record[code if source.parallel else "text"]


def _limit(split: str) -> int | None:
    return EVALUATION_CHARACTERS if split == "evaluation" else None
