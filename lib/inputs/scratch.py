"""Texts of the Scratch website: parallel, another domain than browser help."""

import json
from functools import cache

from lib.inputs import assets, languages, text

RECIPE = 1  # raise when the segments or their splits change
SPLITS = ("calibration", "evaluation")
# Whole families of pages are held out, since a family's pages (one year's report, the next) repeat each other.
HELD_OUT = ("annual-report", "conference", "download")


# Languages with at least 100 segments translated in each split, so that one can be checked before the download.
KNOWN = tuple(
    "ar be bn cs cy de en es es-419 fa fr fy ha hi hr hy id it ja ja-Hira kk ko lv nl pl pt pt-BR ro ru sk sv sw tr "
    "vi zh zh-TW".split())


def rows(language: str, split: str) -> list[tuple[str, str]]:
    """(id, text) of a split, the same ids in each of the paper's languages; others lack a few."""
    if language in languages.PAPER:
        side, ids = _segments()[language], _splits()[split]
    else:
        side = _side(language)
        ids = text.further(side, _segments()["en"], _splits())[split]
    return [(i, side[i]) for i in ids]


@cache
def _segments() -> dict[str, dict[str, str]]:
    return {language: _side(language) for language in languages.PAPER}


@cache
def _splits() -> dict[str, list[str]]:
    """Ids by split. FAQ pages, and FAQ entries elsewhere, are in neither: they are kept for questions."""
    ids = [i for i in text.distinct(_segments()) if "faq" not in i.lower()]
    return {"calibration": [i for i in ids if not i.startswith(HELD_OUT)],
            "evaluation": [i for i in ids if i.startswith(HELD_OUT)]}


def _pages():
    return assets.fetch("scratch") / "package" / "www"


def _side(language: str) -> dict[str, str]:
    code, side = languages.external("scratch", language), {}
    for page in sorted(_pages().iterdir()):
        path = page / f"{code}.json"
        name = page.name.removeprefix("scratch-website.").removesuffix("-l10njson")
        entries = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        side |= {f"{name}/{key}": text.clean(value) for key, value in entries.items() if isinstance(value, str)}
    return side
