"""Which of two endings is the true one? The other is the ending of another held-out segment of the language.

This asks for fluency and needs no knowledge: the counterpart of the tasks about facts.
"""

from collections import Counter

from lib.inputs import corpora, text
from lib.inputs.tasks.items import Item, placed, places, shuffled

SPLITS = ("evaluation", "parallel")  # what is held out from calibration
LENGTH = 1.10  # the false ending is at most this many times longer or shorter than the true one
PART = 8  # characters that a beginning and an ending have at least
GRAM = 3  # characters in a row whose overlap says how near two endings are
UNSPACED = ("zh", "ja", "th", "km", "lo", "my")  # written without spaces between words


def items(language: str, corpus: str) -> list[Item]:
    """One item a held-out segment, the false ending being the nearest by overlap of character n-grams among those of
    like length."""
    return _items(language, corpus, "completion", _nearest)


def control(language: str, corpus: str) -> list[Item]:
    """The same segments with the words of the true ending in another order as the false one: what a model must
    reach that knows any order of words at all."""
    return _items(language, corpus, "completion_control", lambda ending, endings, i: _reordered(ending, language, i))


def _items(language: str, corpus: str, task: str, wrong) -> list[Item]:
    halves = {}
    for split in SPLITS:
        if split in corpora.splits(corpus) and language in corpora.languages(corpus, split):
            data = corpora.load(corpus, language, split)
            halves |= {i: h for i, t in zip(data["id"], data["text"], strict=True) if (h := cut(t, language))}
    halves = {i: halves[i] for i in text.order(list(halves))}
    endings = {i: ending for i, (_, ending) in halves.items()}
    found = {i: other for i, ending in endings.items() if (other := wrong(ending, endings, i))}
    return [Item(f"{task}:{corpus}:{i}", task, halves[i][0], placed(endings[i], [found[i]], place), place)
            for i, place in zip(found, places(len(found), 2, f"{task} {corpus}"), strict=True)]


def cut(segment: str, language: str) -> tuple[str, str] | None:
    """(beginning, ending) of a segment, cut at the space nearest to its middle, the space staying with the
    beginning; None where a part would be short. Languages without spaces are cut behind the mark nearest to it."""
    ends = [k + 1 for k, c in enumerate(segment) if (c in "，、；：。！？" if language in UNSPACED else c == " ")]
    ends = [k for k in ends if PART <= k <= len(segment) - PART]
    if not ends:
        return None
    place = min(ends, key=lambda k: (abs(k - len(segment) / 2), k))
    return segment[:place], segment[place:]


def _nearest(ending: str, endings: dict[str, str], own: str) -> str | None:
    """The other segment's ending of like length that shares most n-grams, the first of equals. Both begin with a
    capital letter or neither does: else the letter alone would tell them apart."""
    grams = _grams(ending)
    alike = [e for i, e in endings.items() if i != own and e.casefold() != ending.casefold()
             and max(len(e), len(ending)) <= LENGTH * min(len(e), len(ending))
             and e[0].isupper() == ending[0].isupper()]
    return max(alike, key=lambda e: _overlap(grams, _grams(e)), default=None)


def _grams(ending: str) -> Counter[str]:
    return Counter(ending[k:k + GRAM] for k in range(len(ending) - GRAM + 1))


def _overlap(a: Counter[str], b: Counter[str]) -> float:
    return (a & b).total() / max((a | b).total(), 1)


def _reordered(ending: str, language: str, own: str) -> str | None:
    """The ending's words, or characters where words are not written apart, in hash order."""
    gap = "" if language in UNSPACED else " "
    parts = list(ending) if language in UNSPACED else ending.split()
    order = shuffled([str(k) for k in range(len(parts))], own)
    made = gap.join(parts[int(k)] for k in order)
    return None if made == ending else made
