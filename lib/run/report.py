"""The compendium as a web site that needs nothing else: `make report` writes it to site/.

An index (the answer, the verdicts, the list of notebooks) and every executed notebook as a page, figures inside. No
page asks for anything from elsewhere.

    python -m lib.run.report
"""

import base64
import html
import re
import shutil
from pathlib import Path

import latex2mathml.converter
import nbformat
import pandas as pd
from nbconvert import HTMLExporter
from nbconvert.filters import markdown2html
from pygments.formatters import HtmlFormatter

from lib.errors import InputError
from lib.paths import EXECUTED, FIGURES, OUTPUT, shown
from lib.run import readme

SITE = OUTPUT / "site"
FIRST = "published"
FORMULA = re.compile(r"\$([^$]+)\$")
ASIDE = "\ue000"  # stands for a formula; no text has this character
STYLE = """
body {font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 54rem; margin: 0 auto; padding: 1rem}
nav {font-size: .9rem} h1 {line-height: 1.2} a {color: #0b5394} .anchor-link, .jp-InputPrompt, .prompt {display: none}
img, svg {max-width: 100%; height: auto}
div.output_wrapper, .output_area, .output_subarea, div.highlight, .scroll {overflow-x: auto}
pre {font-size: .8rem; line-height: 1.35; margin: .4rem 0; padding: .5rem; background: #f6f6f4}
.output pre {background: none}
table {border-collapse: collapse; font-size: .8rem}
td, th {padding: .15rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd}
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head><body>
{body}
</body></html>
"""


def build() -> Path:
    """Write the site anew and return its index. Raises InputError when no notebook has been executed."""
    runs = [FIRST, *sorted(p.name for p in EXECUTED.iterdir() if p.name not in (FIRST, "redraw"))]
    pages = {label: sorted(p for p in (EXECUTED / label).glob("[0-9][0-9]_*.ipynb") if "." not in p.stem)
             for label in runs}
    if not any(pages.values()):
        raise InputError("no executed notebook is there to report; run `make figures` first")
    shutil.rmtree(SITE, ignore_errors=True)
    for label, notebooks in pages.items():
        for path in notebooks:
            _write(SITE / label / f"{path.stem}.html", path.stem, _notebook(path, notebooks))
    _write(SITE / "index.html", "Does the language of the calibration text matter?", _index(pages))
    return SITE / "index.html"


def _write(path: Path, title: str, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    style = STYLE + HtmlFormatter(style="friendly").get_style_defs(".highlight")
    path.write_text(PAGE.format(title=html.escape(title), style=style, body=body))


def _notebook(path: Path, siblings: list[Path]) -> str:
    """The page of an executed notebook, with links to the one before, the index and the one after."""
    notebook, formulas = nbformat.read(path, 4), []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # put aside, as the exporter would take MathML apart
            formulas += FORMULA.findall(cell.source)
            cell.source = FORMULA.sub(ASIDE, cell.source)
    exporter = HTMLExporter(template_name="basic", embed_images=True, exclude_anchor_links=True)
    body, _ = exporter.from_notebook_node(notebook)
    for formula in formulas:
        body = body.replace(ASIDE, latex2mathml.converter.convert(formula), 1)
    body = re.sub(r'href="(?:\./)?(\d\d_\w+)\.ipynb', r'href="\1.html', body)
    place = siblings.index(path)
    around = [f'<a href="{p.stem}.html">{arrow} {p.stem}</a>' for p, arrow in
              ((siblings[place - 1] if place else None, "&larr;"),
               (siblings[place + 1] if place + 1 < len(siblings) else None, "&rarr;")) if p]
    nav = f'<nav><a href="../index.html">index</a> &middot; {" &middot; ".join(around)}</nav>'
    return f"{nav}<main>{body}</main>{nav}"


def _index(pages: dict[str, list[Path]]) -> str:
    parts = ["<h1>Does the language of the calibration text matter?</h1>",
             "<p>Pruning a multilingual language model for use in one language: the study of Kurz, Chen, Flek and Zhao "
             "(TACL 2026), rerun on models that a laptop can hold.</p>"]
    for label, notebooks in pages.items():
        if notebooks:
            parts += [f"<h2>{'What is published' if label == FIRST else f'Your run: {html.escape(label)}'}</h2>",
                      *_answer(label), _contents(label, notebooks)]
    return "\n".join(parts)


def _answer(label: str) -> list[str]:
    """The answer figure and the verdicts of a run, as far as it has them, and the answer in words to what is
    published."""
    figure, verdicts = FIGURES / label / "03_perplexity.png", FIGURES / label / "10_verdicts.csv"
    parts = [markdown2html(readme.answer())] if label == FIRST else []
    if figure.is_file():
        data = base64.b64encode(figure.read_bytes()).decode()
        parts.append(f'<img alt="Perplexity by calibration and evaluation language" src="data:image/png;base64,{data}">'
                     "<p>Perplexity over the dense model's after pruning; read by column. Box: the lowest of the "
                     "calibration languages; dot: its 95 % interval leaves out 0.</p>")
    if verdicts.is_file():
        table = pd.read_csv(verdicts)[["id", "claim", "verdict", "statistic", "low", "high", "n", "note"]]
        table = table.to_html(index=False, float_format="{:.2f}".format, na_rep="", border=0)
        parts += ["<h3>The paper's claims, judged here</h3>", f'<div class="scroll">{table}</div>',
                  "<p>What each statistic is, and how it and its 90 % interval become a verdict, say the rules in the "
                  "notebook on claims.</p>"]
    return parts


def _contents(label: str, notebooks: list[Path]) -> str:
    rows = []
    for path in notebooks:
        title, question = nbformat.read(path, 4).cells[0].source.split("\n")[:2]
        rows.append(f'<li><a href="{label}/{path.stem}.html">{html.escape(title.lstrip("# "))}</a>: '
                    f'{html.escape(question.strip("*"))}</li>')
    return f"<h3>Notebooks</h3><ul>{''.join(rows)}</ul>"


if __name__ == "__main__":
    print(shown(build()))
