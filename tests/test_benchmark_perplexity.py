from benchmarks import perplexity

SMALL = ["--corpus", "data/quick/home", "--languages", "de,sw", "--segments", "5"]


def test_all_settings_score_the_same_text(capsys):
    assert perplexity.main(["--model", "tiny-gemma3", *SMALL]) == 0
    said = capsys.readouterr().out
    assert said.count("eager") == said.count("sdpa") == 2 and "times the tokens a second" in said


def test_settings_differ_by_rounding_alone():
    import torch

    from lib.inputs import models

    torch.set_float32_matmul_precision("highest")  # `main` leaves its own
    table = perplexity.measure(*models.load("tiny-llama"), "data/quick/home", ["de"], 5)
    assert table["difference"].max() < 1e-5 and table["tokens"].nunique() == 1 and (table["seconds"] > 0).all()


def test_an_unknown_language_is_an_error(capsys):
    assert perplexity.main(["--model", "tiny-llama", "--corpus", "data/quick/home", "--languages", "fr"]) == 2
    assert "de, en, sw" in capsys.readouterr().err
