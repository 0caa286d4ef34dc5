import matplotlib.pyplot as plt
import pandas as pd
import pytest

from lib.run import figures
from lib.study import Study


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    figures.style()
    frame = pd.DataFrame({"x": [1, 2], "y": [0.1, 1 / 3]})

    def draw():
        fig, axes = plt.subplots()
        axes.plot(frame["x"], frame["y"])
        figures.save(fig, "99_line", frame, Study.load("quick"))
        plt.close(fig)
        return {p.suffix: p.read_bytes() for p in (tmp_path / "quick").iterdir()}

    return draw


def test_same_figure_same_bytes(saved):
    first = saved()
    assert set(first) == {".svg", ".pdf", ".png", ".csv"}
    assert saved() == first


def test_the_profile_is_printed_in_the_figure(saved, monkeypatch):
    monkeypatch.setitem(plt.rcParams, "svg.fonttype", "none")
    monkeypatch.setattr(figures, "style", lambda: None)
    assert b"profile quick" in saved()[".svg"]


def test_the_csv_is_the_plotted_frame(saved):
    assert saved()[".csv"] == b"x,y\n1,0.1\n2,0.333333\n"
