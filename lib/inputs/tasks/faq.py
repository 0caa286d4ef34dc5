"""Which answer belongs to the question? Questions and answers of the Scratch website's FAQ pages, which no
calibration or evaluation text holds."""

import re
from functools import cache

from lib.inputs import scratch, text
from lib.inputs.languages import PAPER
from lib.inputs.tasks import templates
from lib.inputs.tasks.items import Item, placed, places

ENDINGS = (("Title", "Body"), ("Title", "Description"))  # of the keys of a question and its answer
_LINK, _TAG = re.compile(r"\{(\w+)\}"), re.compile(r"</?\w[^<>]*>")
WORDS = (4, 60)  # of an English answer


def items(language: str) -> list[Item]:
    """One item a question. The wrong answers are those of other questions whose English length is nearest."""
    made = []
    ids = text.order(list(_pairs()))
    side, english = _side(language), _side("en")
    for i, place in zip(ids, places(len(ids), 4, "faq"), strict=True):
        length = len(english[_pairs()[i]])
        near = sorted((o for o in ids if o != i), key=lambda o: (abs(len(english[_pairs()[o]]) - length), o))[:3]
        options = placed(side[_pairs()[i]], [side[_pairs()[o]] for o in near], place)
        made.append(Item(f"faq:{i}", "faq", templates.fill("faq", language, side[i]), options, place))
    return made


@cache
def _side(language: str) -> dict[str, str]:
    """Id -> text, with the words of a link in its place and without tags."""
    raw = scratch._side(language)
    return {i: _LINK.sub(lambda found, i=i: raw.get(_words_of(i, found[1]), found[0]), _TAG.sub("", t))
            for i, t in raw.items()}


def _words_of(i: str, link: str) -> str:
    """Id of a link's words: `faq/faq.ideasLinkText` for {ideasLink} in faq/faq.makeGameBody."""
    return f"{i.rpartition('.')[0]}.{link}Text"


@cache
def _pairs() -> dict[str, str]:
    """Id of a question -> id of its answer: prose, translated, and said once in every language."""
    sides = {language: _side(language) for language in PAPER}
    pairs, seen = {}, {language: set() for language in PAPER}
    for question in sorted(sides["en"]):
        answer = next((question.removesuffix(q) + a for q, a in ENDINGS
                       if question.endswith(q) and question.removesuffix(q) + a in sides["en"]), None)
        if "faq" not in question.lower() or answer is None or not _usable(sides, question, answer):
            continue
        if any(sides[x][i] in seen[x] for x in PAPER for i in (question, answer)):
            continue
        pairs[question] = answer
        for x in PAPER:
            seen[x] |= {sides[x][question], sides[x][answer]}
    return pairs


def _usable(sides: dict[str, dict[str, str]], question: str, answer: str) -> bool:
    """Whether both are whole (an answer that ends in a colon goes on elsewhere) and translated everywhere."""
    said = sides["en"][answer]
    return WORDS[0] <= len(said.split()) <= WORDS[1] and not said.endswith(":") and all(
        text._translated(sides[x].get(i, ""), None if x == "en" else sides["en"][i])
        for x in PAPER for i in (question, answer))
