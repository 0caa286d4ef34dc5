"""Which of four sentences is the translation of the English one?"""

import numpy as np

from lib.errors import InputError
from lib.inputs import corpora, text
from lib.inputs.tasks import templates
from lib.inputs.tasks.items import Item, placed, places

SOURCE = "en"
LENGTH = 1.25  # a wrong option's English side is at most this many times longer or shorter
LONGEST = 40  # words of an English sentence


def items(language: str, corpus: str) -> list[Item]:
    """One item a parallel segment. The wrong options are translations of the three segments, length-matched, that
    share most words with it on the English side."""
    if SOURCE not in corpora.languages(corpus, "parallel"):
        raise InputError(f"retrieval needs parallel text with an English side; {corpus!r} has "
                         f"{', '.join(corpora.languages(corpus, 'parallel'))}")
    english, side = (dict(zip(data["id"], data["text"], strict=True))
                     for data in (corpora.load(corpus, x, "parallel") for x in (SOURCE, language)))
    ids = [i for i in english if i in side and len(english[i].split()) <= LONGEST]
    hard = hardest([english[i] for i in ids])
    kept = [k for k in range(len(ids)) if len(hard[k]) == 3]
    made = []
    for k, place in zip(kept, places(len(kept), 4, f"retrieval {corpus}"), strict=True):
        options = placed(side[ids[k]], [side[ids[o]] for o in hard[k]], place)
        context = templates.fill("retrieval", language, english[ids[k]])
        made.append(Item(f"retrieval:{corpus}:{ids[k]}", "retrieval", context, options, place))
    return made


def hardest(sentences: list[str]) -> list[list[int]]:
    """English sentences -> for each the three others of like length with the highest Jaccard similarity of word
    sets, the first of equals; fewer where fewer are of like length."""
    similar = text.jaccard(sentences)
    length = np.array([len(s) for s in sentences], dtype=float)
    ratio = np.maximum(length[:, None], length) / np.minimum(length[:, None], length)
    alike = (ratio <= LENGTH) & ~np.eye(len(sentences), dtype=bool)
    order = np.argsort(np.where(alike, -similar, np.inf), axis=1, kind="stable")
    return [[int(o) for o in row[:3] if alike[k, o]] for k, row in enumerate(order)]
