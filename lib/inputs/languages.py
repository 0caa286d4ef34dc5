"""Language codes: the paper's two-letter ones, and what other collections call them. The one place for both.

And how a mixture of languages is written: "de+en" in equal shares, "3en+de" three to one, "all" of a study's evenly.
"""

import re
from collections.abc import Sequence

from lib.errors import InputError

PAPER = ("ar", "de", "en", "es", "ru", "sw", "zh")

# collection -> our code -> its code, where the two differ.
EXTERNAL = {
    "chromium": {"en": "en-GB", "zh": "zh-CN", "pt": "pt-PT"},
    "scratch": {"zh": "zh-cn", "zh-TW": "zh-tw", "pt-BR": "pt-br"},
    "udhr": {
        "ar": "arb", "de": "deu_1996", "en": "eng", "es": "spa", "ru": "rus", "sw": "swh", "zh": "cmn_hans",
        "af": "afr", "am": "amh", "bg": "bul", "bn": "ben", "ca": "cat", "cs": "ces", "da": "dan",
        "el": "ell_monotonic", "et": "est", "fa": "pes_1", "fi": "fin", "fr": "fra", "gu": "guj", "he": "heb",
        "hi": "hin", "hr": "hrv", "hu": "hun", "id": "ind", "it": "ita", "ja": "jpn", "kn": "kan", "ko": "kor",
        "lt": "lit", "lv": "lav", "mr": "mar", "nb": "nob", "nl": "nld", "pl": "pol", "pt": "por_PT",
        "pt-BR": "por_BR", "ro": "ron_2006", "sk": "slk", "sl": "slv", "sr": "srp_cyrl", "sv": "swe", "ta": "tam",
        "te": "tel", "th": "tha", "tr": "tur", "uk": "ukr", "ur": "urd", "vi": "vie", "xh": "xho", "zu": "zul"},
    "ntrex": {
        "ar": "arb_Arab", "de": "deu_Latn", "en": "eng_Latn", "es": "spa_Latn", "ru": "rus_Cyrl", "sw": "swa_Latn",
        "zh": "zho_Hans", "bg": "bul_Cyrl", "bn": "ben_Beng", "ca": "cat_Latn", "cs": "ces_Latn", "da": "dan_Latn",
        "el": "ell_Grek", "et": "est_Latn", "fi": "fin_Latn", "fil": "fil_Latn", "fr": "fra_Latn",
        "he": "heb_Hebr", "hi": "hin_Deva", "hr": "hrv_Latn", "hu": "hun_Latn", "id": "ind_Latn", "it": "ita_Latn",
        "ja": "jpn_Jpan", "ko": "kor_Hang", "lt": "lit_Latn", "nb": "nob_Latn", "nl": "nld_Latn", "pl": "pol_Latn",
        "pt": "por_Latn", "ro": "ron_Latn", "sk": "slk_Latn", "sl": "slv_Latn", "sv": "swe_Latn", "ta": "tam_Taml",
        "th": "tha_Thai", "tr": "tur_Latn", "uk": "ukr_Cyrl", "vi": "vie_Latn", "zh-TW": "zho_Hant"},
    "mc4": {"he": "iw", "nb": "no"},
    "mkqa": {"zh": "zh_cn"},
}


def weights(calibration: str, every: Sequence[str] = ()) -> dict[str, int]:
    """A language or mixture -> the weight of each language in it, in the order they are named. `every`: what "all"
    stands for. Raises InputError for what cannot be read, or names a language twice."""
    found: dict[str, int] = {}
    for part in every if calibration == "all" else calibration.split("+"):
        weight, code = re.fullmatch(r"(\d*)(.*)", part).groups()
        if not code or weight and not int(weight) or code in found:
            raise InputError(f"calibration {calibration!r} cannot be read; write each language of a mixture once, with "
                             'a weight in front if they differ: "de+en", "3en+de"; or "all"')
        found[code] = int(weight or 1)
    return found


def external(collection: str, code: str) -> str:
    """Our code -> the collection's."""
    return EXTERNAL.get(collection, {}).get(code, code)


def internal(collection: str, code: str) -> str:
    """The collection's code -> ours."""
    return {theirs: ours for ours, theirs in EXTERNAL.get(collection, {}).items()}.get(code, code)
