"""Text from the hub through `datasets`: streamed, the first documents only, kept in the cache as parquet.

Where each dataset lies, at which revision, is pinned in data/assets.toml under [hub.*].
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lib.errors import AssetError, InputError
from lib.inputs import assets, languages, text
from lib.paths import CACHE

EVALUATION_CHARACTERS = 2000  # a document's start: as a segment it fits into any model's context
MC4 = ("af am ar az be bg bn ca ceb co cs cy da de el en eo es et eu fa fi fil fr fy ga gd gl gu ha haw he hi hmn ht "
       "hu hy id ig is it ja jv ka kk km kn ko ku ky la lb lo lt lv mg mi mk ml mn mr ms mt my nb ne nl ny pa pl ps pt "
       "ro ru sd si sk sl sm sn so sq sr st su sv sw ta te tg th tr uk ur uz vi xh yi yo zh zu")
HELLASWAG = "ar bn ca da de en es eu fr gu hi hr hu hy id is it kn ml mr nb ne nl pt ro ru sk sr sv ta te uk vi zh"


@dataclass(frozen=True)
class Source:
    """One hub dataset. `{code}` in a pattern is the language's code there."""

    name: str
    known: tuple[str, ...]
    files: dict[str, str]  # our split -> pattern of data files; empty: the dataset's own choice
    split: str = "train"  # of the dataset, for every split of ours
    parallel: bool = False  # rows of all languages are translations of each other
    documents: int = 2000  # read per language and split
    pinned: dict[str, str] = field(default_factory=dict)  # replaces the pin of data/assets.toml

    @property
    def pin(self) -> dict[str, str]:
        """`path` (hub id, or a local folder of the same layout) and `revision`."""
        return self.pinned or assets.hub(self.name)


SOURCES = {
    "mc4": Source("mc4", tuple(MC4.split()), {"calibration": "multilingual/c4-{code}.tfrecord-*.json.gz",
                                              "evaluation": "multilingual/c4-{code}-validation.tfrecord-*.json.gz"}),
    "ntrex": Source("ntrex", tuple(sorted(languages.EXTERNAL["ntrex"])), {"evaluation": "", "parallel": ""}, "test",
                    parallel=True),
    "hellaswag": Source("hellaswag", tuple(HELLASWAG.split()), {"calibration": "data/{code}/val.jsonl"},
                        documents=10_000),  # short ones
}


def splits(source: Source) -> tuple[str, ...]:
    """Our splits that the source has."""
    return tuple(source.files)


def fingerprint(source: Source) -> str:
    """Identity of the text as far as it is known without reading it."""
    return f"{source.pin['path']}@{source.pin['revision']}:{source.documents}"


def rows(source: Source, language: str, split: str) -> list[tuple[str, str]]:
    """(id, text): the first documents of a split, in hash order of the ids.

    Parallel text is split by a hash of its row number, evaluation getting 40 %; other text keeps the dataset's own
    splits, each document once. Text that evaluation has stands in no other split. Raises InputError for a language
    that is not there, AssetError when the hub cannot be reached or the text is not laid out as expected.
    """
    if language not in source.known:
        raise InputError(f"{source.name} has no text in {language!r}; it has {', '.join(source.known)}")
    evaluation = _evaluation(source, language)
    if split == "evaluation":
        found = {i: t[:EVALUATION_CHARACTERS] for i, t in evaluation.items() if t}
    else:
        taken = {"", *map(_start, evaluation.values())}
        found = {i: t for i, t in _documents(source, language, split).items() if _start(t) not in taken}
    if source.parallel:
        return [(i, found[i]) for i in text.order(list(found))]
    once = {_start(t): i for i, t in reversed(found.items())}  # the first of those that begin alike
    return [(f"{language}:{i}", found[i]) for i in text.order(list(once.values()))]


def _evaluation(source: Source, language: str) -> dict[str, str]:
    """Documents of the evaluation split, whole; none where the source has no such split."""
    if "evaluation" not in source.files:
        return {}
    documents = _documents(source, language, "evaluation")
    return {i: t for i, t in documents.items() if text.share(i) < 0.4} if source.parallel else documents


def _start(document: str) -> str:
    """What tells a document from others: the part of it that evaluation reads."""
    return document[:EVALUATION_CHARACTERS]


def _documents(source: Source, language: str, split: str) -> dict[str, str]:
    """Row number -> text of the first documents, from the cache, read from the hub first if they are not there."""
    from datasets import Dataset

    if _is_local(source):
        return dict(_stream(source, language, split))
    kind = "all" if source.parallel else split
    name = f"{source.name}-{source.pin['revision']}-{language}-{kind}-{source.documents}.parquet"
    path = CACHE / "corpora" / name
    if not path.is_file():
        documents = dict(_stream(source, language, split))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as place:
            made = Path(place, name)
            Dataset.from_dict({"id": list(documents), "text": list(documents.values())}).to_parquet(made)
            made.replace(path)
    data = Dataset.from_parquet(str(path), keep_in_memory=True)
    return dict(zip(data["id"], data["text"], strict=True))


def _stream(source: Source, language: str, split: str) -> Iterator[tuple[str, str]]:
    """(row number, text) of the first documents, one by one."""
    from datasets import load_dataset

    code = languages.external(source.name, language)
    pattern = source.files[split].format(code=code)
    where = {"data_files": {source.split: pattern}} if pattern else {}
    pinned = {} if _is_local(source) else {"revision": source.pin["revision"]}
    try:
        stream = load_dataset(source.pin["path"], streaming=True, split=source.split, **where, **pinned)
        for number, record in zip(range(source.documents), stream, strict=False):
            yield str(number), text.clean(_text(source, record, code))
    except Exception as error:  # the libraries below `datasets` raise network errors of kinds that share no base
        raise AssetError(
            f"{source.name} ({source.pin['path']}, {language}, {split}) cannot be read: {type(error).__name__}: "
            f"{error}. Check the network and run the same command again, or give a folder of text as the corpus"
        ) from error


def _is_local(source: Source) -> bool:
    return Path(source.pin["path"]).is_dir()


def _text(source: Source, record: dict, code: str) -> str:
    if source.name == "hellaswag":  # the context with its right ending, as text
        return f"{record['ctx']} {record['endings'][int(record['label'])]}"
    return record[code if source.parallel else "text"]
