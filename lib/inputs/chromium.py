"""Chromium's interface and help strings: parallel, about 12 words a segment, in over 50 languages."""

import struct
from functools import cache
from pathlib import Path

from lib.errors import AssetError
from lib.inputs import assets, languages, text

RECIPE = 1  # raise when the segments or their splits change
SPLITS = ("calibration", "evaluation", "parallel")


# What the pinned package holds, so that a language can be checked before the download.
KNOWN = tuple(
    "am ar bg bn ca cs da de el en en-US es es-419 et fa fi fil fr gu he hi hr hu id it ja kn ko lt lv ml mr ms nb nl "
    "pl pt pt-BR ro ru sk sl sr sv sw ta te th tr uk vi zh zh-TW".split())


def rows(language: str, split: str) -> list[tuple[str, str]]:
    """(id, text) of a split, the same ids in each of the paper's languages; others lack a few."""
    if language in languages.PAPER:
        side, ids = _segments()[language], _splits()[split]
    else:
        side = _side(language)
        english = {} if language.startswith("en-") else _segments()["en"]
        ids = text.further(side, english, _splits())[split]
    return [(i, side[i]) for i in ids]


@cache
def _segments() -> dict[str, dict[str, str]]:
    return {language: _side(language) for language in languages.PAPER}


@cache
def _splits() -> dict[str, list[str]]:
    """Ids by split. No two ids share a side or nearly share the English one, so splits cannot either; which
    split an id is in depends on its English side alone."""
    made = {split: [] for split in SPLITS}
    for i in text.distinct(_segments()):
        place = text.share(_segments()["en"][i])
        made["calibration" if place < 0.80 else "evaluation" if place < 0.89 else "parallel"].append(i)
    return made


def _side(language: str) -> dict[str, str]:
    path = assets.fetch("chromium") / f"{languages.external('chromium', language)}.pak"
    return {str(number): text.clean(string) for number, string in read_pak(path).items()}


def read_pak(path: Path) -> dict[int, str]:
    """Strings by resource id of a .pak file of format 5 (Chromium, ui/base/resource/data_pack.cc): a header
    <version u32, encoding u8, 3 unused, resources u16, aliases u16>, then <id u16, offset u32> for each resource
    and one more that ends the last. Aliases repeat other strings and are left out."""
    data = path.read_bytes()
    version, encoding, resources = struct.unpack_from("<IB3xH", data)
    if version != 5 or encoding != 1:
        raise AssetError(f"{path} is a .pak of version {version}, encoding {encoding}; 5 and 1 (UTF-8) can be read")
    entries = [struct.unpack_from("<HI", data, 12 + 6 * k) for k in range(resources + 1)]
    strings = {}
    for (number, start), (_, end) in zip(entries, entries[1:], strict=False):
        try:
            strings[number] = data[start:end].decode()
        except UnicodeDecodeError:
            continue  # an image or script, not a string
    return strings
