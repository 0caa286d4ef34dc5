"""The form every notebook source keeps."""

import nbformat
import pytest

from lib.paths import ROOT
from lib.run import notebooks

SOURCES = notebooks.sources()


@pytest.fixture(params=SOURCES, ids=[p.stem for p in SOURCES])
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks():
    assert [p.name[:2] for p in SOURCES][:3] == ["01", "02", "03"]


def test_one_parameters_cell_with_the_common_parameters(notebook):
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    assert cell.source == 'profile = "published"\noverrides = {}\nfresh = False'


def test_sources_are_stripped(notebook):
    assert all(not c.outputs and c.execution_count is None for c in code(notebook))
    assert notebook.metadata.kernelspec.name == "python3"


def test_title_and_question_open_it_and_provenance_ends_it(notebook):
    title, question = notebook.cells[0].source.split("\n")[:2]
    assert title.startswith("# ") and question.startswith("**") and question.rstrip().endswith("?**")
    assert code(notebook)[-1].source == "provenance.stamp(study)"


def test_cells_are_short_and_define_no_functions(notebook):
    for cell in code(notebook):
        lines = cell.source.split("\n")
        assert len(lines) <= 18, cell.source
        assert not any(line.lstrip().startswith(("def ", "class ")) for line in lines)


def test_torch_is_imported_only_where_something_is_computed(notebook):
    for cell in code(notebook):
        if "compute" not in cell.metadata.get("tags", []):
            assert "torch" not in cell.source and "lib.pruning" not in cell.source


def test_each_figure_is_saved_under_the_notebooks_number(notebook, request):
    source = "\n".join(c.source for c in code(notebook))
    number = request.node.callspec.id[:2]
    assert source.count("figures.save(") == source.count(f', "{number}_') > 0


@pytest.mark.parametrize("name", [p.name for p in SOURCES])
def test_what_is_published_was_run_in_order_and_says_nothing_of_the_machine(name):
    cells = code(nbformat.read(ROOT / "notebooks/executed/published" / name, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for output in (output for cell in cells for output in cell.outputs):
        assert output.output_type != "error" and output.get("name") != "stderr", output
        assert "site-packages" not in str(output) and str(ROOT) not in str(output), output
