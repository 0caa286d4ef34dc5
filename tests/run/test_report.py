"""The site: every link leads somewhere, every image is inside, nothing is asked from elsewhere."""

import base64
import re
from html.parser import HTMLParser

import nbformat
import pytest

from lib.errors import InputError
from lib.run import report

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


class Reader(HTMLParser):
    """Collects what a page links to and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.loaded += [found[key] for key in ("src", "href", "data", "poster") if key in found and tag != "a"]


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Two executed notebooks of two runs in a folder of their own."""
    monkeypatch.setattr(report, "EXECUTED", tmp_path / "notebooks" / "executed")
    monkeypatch.setattr(report, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(report, "SITE", tmp_path / "site")
    for label in ("published", "mine"):
        folder = tmp_path / "notebooks" / "executed" / label
        folder.mkdir(parents=True)
        for name in ("01_first", "02_second"):
            image = nbformat.v4.new_output("display_data", {"image/png": PNG, "text/plain": "figure"})
            notebook = nbformat.v4.new_notebook(cells=[
                nbformat.v4.new_markdown_cell(f"# {name}\n**What is $x_1^2$ & why?**\n\n[other](01_first.ipynb)"),
                nbformat.v4.new_code_cell("price = '$5 and $6'", outputs=[image])])
            nbformat.write(notebook, folder / f"{name}.ipynb")
    (folder / "02_second.partial.ipynb").write_text("torn")
    (tmp_path / "figures" / "mine").mkdir(parents=True)
    (tmp_path / "figures" / "mine" / "10_verdicts.csv").write_text(
        "id,claim,verdict,statistic,low,high,n,note\nC1,the first claim,supported,0.5,0.1,0.9,7,a <note>\n")
    return tmp_path


def test_links_lead_somewhere_and_images_are_inside(executed):
    index = report.build()
    pages = sorted(index.parent.rglob("*.html"))
    assert len(pages) == 5 and index in pages
    for page in pages:
        found = Reader(page.read_text())
        assert found.links and all((page.parent / link).is_file() for link in found.links if ":" not in link)
        assert all(source.startswith("data:") for source in found.loaded), found.loaded
    assert sum("image/png" in page.read_text() for page in pages) == 4


def test_formulas_are_drawn_and_code_is_left_alone(executed):
    report.build()
    page = (executed / "site" / "mine" / "02_second.html").read_text()
    assert "<msubsup>" in page and report.ASIDE not in page
    assert "$5 and $6" in re.sub(r"<[^>]+>", "", page) and 'href="01_first.html"' in page


def test_the_index_has_the_verdicts_and_every_question(executed):
    text = report.build().read_text()
    assert "the first claim" in text and "a &lt;note&gt;" in text and "Your run: mine" in text
    assert text.count("& why?".replace("&", "&amp;")) == 4


def test_without_executed_notebooks_it_says_what_to_do(executed):
    for path in (executed / "notebooks").rglob("*.ipynb"):
        path.unlink()
    with pytest.raises(InputError, match="make figures"):
        report.build()
