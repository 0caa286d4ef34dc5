"""What every corpus does to its text: clean it, drop what is nearly there already, split it."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array

MIN_WORDS = 6
NEAR = 0.6  # Jaccard similarity of English word sets from which two segments count as the same content
# Markup, variables and addresses; what is left is prose that reads alike in every language.
_PLACEHOLDER = re.compile(r"[<>{}\[\]|]|\$\w|&\w+;|%[\w(]|https?:|www\.|\\\w|_{2,}")
# The two joiners (U+200C, U+200D) are not among them: Persian and the Indian languages are spelt with them.
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\u00ad]")

Segments = Mapping[str, Mapping[str, str]]  # language -> id -> text


def clean(text: str) -> str:
    """NFC, no invisible characters (direction marks, soft hyphens), every run of white space one space."""
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFC", text)).split())


def is_prose(text: str) -> bool:
    """Whether an English side has at least MIN_WORDS words and no markup or placeholder."""
    return len(text.split()) >= MIN_WORDS and not _PLACEHOLDER.search(text)


def order(ids: Sequence[str]) -> list[str]:
    """The ids in the order of a fixed hash: any first k of them are a sample, the same in every language."""
    return sorted(ids, key=lambda i: hashlib.sha256(i.encode()).digest())


def share(text: str) -> float:
    """A number in [0, 1) that depends on the text alone, to split by."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def distinct(segments: Segments, english: str = "en") -> list[str]:
    """Ids, in hash order, of the segments that are prose and translated in every language, and of which no side
    equals, and no English side nearly equals (Jaccard >= NEAR on word sets), that of one before."""
    common = set.intersection(*(set(side) for side in segments.values()))
    others = [language for language in segments if language != english]
    ids = [i for i in order(common) if is_prose(segments[english][i])
           and all(_translated(segments[o][i], segments[english][i]) for o in others)]
    seen: dict[str, set[str]] = {language: set() for language in segments}
    unique = []
    for i in ids:
        if any(segments[language][i] in seen[language] for language in segments):
            continue
        unique.append(i)
        for language in segments:
            seen[language].add(segments[language][i])
    similar = jaccard([segments[english][i] for i in unique]) >= NEAR
    kept: list[int] = []
    for k in range(len(unique)):
        if not similar[k, kept].any():
            kept.append(k)
    return [unique[k] for k in kept]


def further(side: Mapping[str, str], english: Mapping[str, str], splits: Mapping[str, list[str]]
            ) -> dict[str, list[str]]:
    """Ids by split of a language that `distinct` did not look at: those translated there, each text once. Text
    that would stand in two splits stays in the one that is held out."""
    seen, kept = set(), {}
    for split in sorted(splits, key=("evaluation", "parallel", "calibration").index):
        kept[split] = []
        for i in splits[split]:
            if _translated(side.get(i, ""), english.get(i)) and side[i] not in seen:
                kept[split].append(i)
                seen.add(side[i])
    return kept


def _translated(text: str, english: str | None) -> bool:
    return bool(text) and text != english and not _PLACEHOLDER.search(text)


def words(text: str) -> set[str]:
    """Lower-case words of an English text, the elements of its Jaccard similarity."""
    return set(re.findall(r"\w+", text.lower()))


def jaccard(texts: Sequence[str]) -> np.ndarray:
    """Jaccard similarity [n, n] float32 of the word sets of n texts."""
    sets = [sorted(words(t)) for t in texts]
    column = {w: k for k, w in enumerate(sorted({w for s in sets for w in s}))}
    rows = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    columns = [column[w] for s in sets for w in s]
    incidence = csr_array((np.ones(len(columns), np.float32), (rows, columns)), shape=(len(sets), len(column)))
    shared = (incidence @ incidence.T).toarray()
    sizes = np.diag(shared)
    return shared / np.maximum(sizes[:, None] + sizes[None, :] - shared, 1)
