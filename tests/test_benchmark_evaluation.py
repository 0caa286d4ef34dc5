from benchmarks import evaluation


def test_the_table_compares_the_same_requests(capsys):
    assert evaluation.main(["--model", "tiny-llama", "--items", "5", "--languages", "de,zh"]) == 0
    said = capsys.readouterr().out
    assert "plain harness" in said and "times the items a second" in said


def test_both_scorers_give_the_same_log_likelihoods():
    from lib.inputs import models

    table = evaluation.measure(*models.load("tiny-gemma3"), ["en", "sw"], 5, 4)
    assert table["difference"].max() < 1e-3 and (table["items"] == 10).all() and (table["seconds"] > 0).all()


def test_an_unknown_language_is_an_error_that_lists_the_known(capsys):
    assert evaluation.main(["--model", "tiny-llama", "--languages", "fr"]) == 2
    assert "it has ar, de" in capsys.readouterr().err
