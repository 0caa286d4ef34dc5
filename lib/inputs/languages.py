"""Language codes: the paper's two-letter ones, and what other collections call them. The one place for both."""

PAPER = ("ar", "de", "en", "es", "ru", "sw", "zh")

# collection -> our code -> its code, where the two differ.
EXTERNAL = {
    "chromium": {"en": "en-GB", "zh": "zh-CN", "pt": "pt-PT"},
    "scratch": {"zh": "zh-cn"},
    "udhr": {"ar": "arb", "de": "deu_1996", "en": "eng", "es": "spa", "ru": "rus", "sw": "swh", "zh": "cmn_hans"},
    "ntrex": {"ar": "arb_Arab", "de": "deu_Latn", "en": "eng_Latn", "es": "spa_Latn", "ru": "rus_Cyrl",
              "sw": "swa_Latn", "zh": "zho_Hans"},
}


def external(collection: str, code: str) -> str:
    """Our code -> the collection's."""
    return EXTERNAL.get(collection, {}).get(code, code)


def internal(collection: str, code: str) -> str:
    """The collection's code -> ours."""
    return {theirs: ours for ours, theirs in EXTERNAL.get(collection, {}).items()}.get(code, code)
