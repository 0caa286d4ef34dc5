"""Every rule on tables whose answer is known: it must be able to say yes, to say no, and to say it cannot
tell."""

import numpy as np
import pandas as pd
import pytest

from lib.analysis import claims
from lib.analysis.claims.guide import LINES
from lib.analysis.claims.margins import MAIN, MODELS
from lib.analysis.claims.perplexity import parameters
from lib.errors import InputError

LANGUAGES = ["ar", "de", "en", "es", "ru", "sw", "zh"]
TWO = ["gemma-3-270m", "smollm2-135m"]
METHODS = ["wanda", "sparsegpt"]
TASKS = {"knowledge": 0.25, "completion": 0.5}


def setting(model, method, calibration, seed=0, **changes) -> dict:
    """The common columns of a row in the main setting."""
    common = {"model": model, "method": method, "group": "row" if method == "wanda" else "block",
              "dtype": "float32", "calibration": calibration, "seed": seed} | MAIN
    if method == "dense":
        common |= {"sparsity": 0.0, "pattern": "none", "group": "none", "calibration_corpus": "none",
                   "n_samples": 0, "seqlen": 0, "budget": "none", "seed": -1}
    return common | changes


def verdict(tables: dict, id: str):
    return claims.verdicts(tables, only=[id]).iloc[0]


def grid(models=TWO, methods=METHODS, languages=LANGUAGES):
    """(model, method, calibration, evaluation language)"""
    return [(m, h, c, x) for m in models for h in methods for c in languages for x in languages]


def segment_nll(gain, models=TWO, methods=METHODS, seeds=(0, 42), n=30, noise=0.02, seed=0) -> pd.DataFrame:
    """Bits per byte 1 + gain(model, calibration, language) + noise a segment."""
    rng = np.random.default_rng(seed)
    frames = []
    for model, method, calibration, language in grid(models, methods):
        for corpus in ("chromium", "scratch"):
            effect = gain(model, calibration, language) + rng.normal(0, noise, n)
            for draw in seeds:
                bits = 1 + effect + rng.normal(0, noise / 5, n)
                frames.append(pd.DataFrame(setting(model, method, calibration, draw) | {
                    "language": language, "corpus": corpus, "segment": np.arange(n),
                    "nll": bits * np.log(2) * 60, "tokens": 12, "bytes": 60}))
    return pd.concat(frames, ignore_index=True)


def target_helps(model, calibration, language):
    return -0.05 * (calibration == language)


def nothing_matters(model, calibration, language):
    return 0.0


class TestTargetPerplexity:
    def test_supported_with_an_exception(self):
        def gain(model, calibration, language):
            return -0.05 * (calibration == ("ru" if language == "zh" else language))

        row = verdict({"segment_nll": segment_nll(gain)}, "C1")
        assert row["verdict"] == "supported" and row["statistic"] == pytest.approx(6 / 7) and row["n"] == 7
        assert 0.5 < row["low"] < row["statistic"] < row["high"]

    def test_contradicted_when_english_is_best_for_all(self):
        row = verdict({"segment_nll": segment_nll(lambda m, c, x: -0.05 * (c == "en"))}, "C1")
        assert row["verdict"] == "contradicted" and row["statistic"] == pytest.approx(1 / 7)
        assert "p 1" in row["note"]

    def test_not_supported_when_half_the_languages_and_when_one_model_fails(self):
        half = segment_nll(lambda m, c, x: -0.05 * (c == (x if x in ("ar", "de", "en", "es") else "en")))
        assert verdict({"segment_nll": half}, "C1")["verdict"] == "not supported"
        one = segment_nll(lambda m, c, x: -0.05 * (c == (x if m == TWO[0] or x < "es" else "en")))
        assert verdict({"segment_nll": one}, "C1")["verdict"] == "not supported"

    def test_noise_is_never_supported(self):
        for seed in range(4):
            frame = segment_nll(nothing_matters, seeds=(0,), seed=seed)
            assert verdict({"segment_nll": frame}, "C1")["verdict"] == "cannot tell"

    def test_one_method_one_model_or_a_hole_cannot_tell(self):
        frame = segment_nll(target_helps)
        one_method = verdict({"segment_nll": frame[frame["method"] == "wanda"]}, "C1")
        assert one_method["verdict"] == "cannot tell" and "sparsegpt" in one_method["note"]
        one_model = verdict({"segment_nll": frame[frame["model"] == TWO[0]]}, "C1")
        assert one_model["verdict"] == "cannot tell" and TWO[0] in one_model["note"] and MODELS == 2
        hole = verdict({"segment_nll": frame.drop(index=5)}, "C1")
        assert hole["verdict"] == "cannot tell" and "missing cells" in hole["note"]

    def test_other_settings_are_not_read(self):
        frame = segment_nll(target_helps)
        against = segment_nll(lambda m, c, x: 0.5 * (c == x))
        others = [against.assign(**{k: v}) for k, v in (
            ("sparsity", 0.7), ("pattern", "2:4"), ("n_samples", 8), ("calibration_corpus", "scratch"),
            ("budget", "segments"), ("method", "magnitude"))]
        others.append(against[against["method"] == "wanda"].assign(group="matrix"))
        others += [against.assign(calibration=mixture) for mixture in ("de+en", "all")]
        mixed = pd.concat([frame, *others])
        assert verdict({"segment_nll": mixed}, "C1").equals(verdict({"segment_nll": frame}, "C1"))
        elsewhere = claims.verdicts({"segment_nll": mixed}, {"sparsity": 0.7}, ["C1"]).iloc[0]
        assert elsewhere["verdict"] == "contradicted"


def layer_error(gain, noise=0.02) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    rows = []
    for model, method, calibration, language in grid():
        for kind in ("local", "propagated"):
            for layer in range(3):
                for module in ("self_attn.q_proj", "mlp.down_proj", "block"):
                    # The block's SNR says the opposite: it must not be read.
                    snr = 10 + layer + gain(calibration, language) * (-1 if module == "block" else 1)
                    rows.append(setting(model, method, calibration) | {
                        "language": language, "layer": layer, "module": module, "kind": kind,
                        "snr_db": snr + rng.normal(0, noise)})
    return pd.DataFrame(rows)


def target_helps_snr(calibration, language):
    return 1.0 * (calibration == language)


class TestTargetSnr:
    def test_both_ways(self):
        yes = verdict({"layer_error": layer_error(target_helps_snr)}, "C2")
        assert yes["verdict"] == "supported" and yes["statistic"] == 1
        no = verdict({"layer_error": layer_error(lambda c, x: 1.0 * (c == "en"))}, "C2")
        assert no["verdict"] == "contradicted"

    def test_noise_cannot_tell(self):
        row = verdict({"layer_error": layer_error(lambda c, x: 0.0, noise=1.0)}, "C2")
        assert row["verdict"] == "cannot tell"

    def test_a_lead_within_the_margin_is_a_tie(self):
        row = verdict({"layer_error": layer_error(lambda c, x: 0.01 * (c == x))}, "C2")
        assert row["verdict"] == "cannot tell"

    def test_unpruned_layers_are_left_out_and_counted(self):
        frame = layer_error(target_helps_snr)
        whole = frame["layer"].eq(0) & frame["module"].eq("mlp.down_proj")
        row = verdict({"layer_error": frame.assign(snr_db=frame["snr_db"].mask(whole, np.inf))}, "C2")
        assert row["verdict"] == "supported" and f"{whole.sum()} unpruned" in row["note"]


def answers(skill, models=TWO[:1], methods=("wanda",), calibrations=LANGUAGES, n=120, dense=0.8, seed=0,
            noise=0.15, tasks=TASKS) -> dict[str, pd.DataFrame]:
    """task_items and downstream. An item's difficulty is shared by all models (paired answers); `skill(model,
    method, calibration, language, task)` is the accuracy; `noise` how far answers are the model's own
    whim."""
    rng = np.random.default_rng(seed)
    frames, chance = [], []
    for task, level in tasks.items():
        for language in LANGUAGES:
            difficulty = rng.permutation((np.arange(n) + 0.5) / n)
            chance.append({"language": language, "task": task, "chance": level})
            for model in models:
                states = [("dense", "none", dense(language, task) if callable(dense) else dense)]
                states += [(h, c, skill(model, h, c, language, task)) for h in methods for c in calibrations]
                for method, calibration, accuracy in states:
                    own = difficulty + rng.normal(0, noise, n)
                    frames.append(pd.DataFrame(setting(model, method, calibration) | {
                        "language": language, "task": task, "item": np.arange(n), "correct": own < accuracy}))
    places = pd.DataFrame(chance)
    return {"task_items": pd.concat(frames, ignore_index=True),
            "downstream": pd.DataFrame([setting("m", "dense", "none")] * len(places)).join(places)}


class TestTargetAccuracy:
    def test_supported_when_another_wins(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.7 if c == "en" else 0.6, noise=0.02), "C3")
        assert row["verdict"] == "supported" and row["statistic"] < 0.4

    def test_contradicted_when_the_target_always_wins(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.7 if c == x else 0.6, noise=0.02), "C3")
        assert row["verdict"] == "contradicted" and row["low"] > 2 / 3

    def test_not_supported_between(self):
        def skill(m, h, c, x, t):
            return 0.7 if c == (x if x < "ru" or x == "zh" else "en") else 0.6

        row = verdict(answers(skill, noise=0.02), "C3")
        assert row["verdict"] == "not supported"

    def test_too_few_items_cannot_tell(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.6, n=30, noise=0.3), "C3")
        assert row["verdict"] == "cannot tell" and "would give" in row["note"]

    def test_at_chance_is_left_out_and_counted(self):
        def skill(m, h, c, x, t):
            return 0.7 if c == (x if t == "completion" else "en") else 0.6

        tables = answers(skill, noise=0.02, dense=lambda x, t: 0.5 if t == "completion" else 0.8)
        row = verdict(tables, "C3")  # the task that spoke for the target was at chance in the dense model
        assert row["verdict"] == "supported" and "7 at-chance" in row["note"]
        nothing = verdict(answers(skill, dense=lambda x, t: TASKS[t]), "C3")
        assert nothing["verdict"] == "cannot tell" and "at chance" in nothing["note"]

    def test_no_chance_level_cannot_tell(self):
        tables = answers(lambda m, h, c, x, t: 0.6)
        tables["downstream"] = tables["downstream"].query("task != 'completion'")
        row = verdict(tables, "C3")
        assert row["verdict"] == "cannot tell" and "completion" in row["note"]


MIXED = [*LANGUAGES, "de+en", "all"]


class TestMixtures:
    def test_supported_when_they_help_now_and_then(self):
        def skill(m, h, c, x, t):
            if c == "all" and x in ("de", "sw"):
                return 0.75
            return 0.58 if c in ("all", "de+en") else 0.6

        row = verdict(answers(skill, calibrations=MIXED, noise=0.01), "C4")
        assert row["verdict"] == "supported" and row["n"] == 7

    def test_contradicted_when_they_always_help(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.7 if c in ("all", "de+en") else 0.6, calibrations=MIXED,
                              noise=0.02), "C4")
        assert row["verdict"] == "contradicted"

    def test_not_supported_when_they_never_help(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.5 if c in ("all", "de+en") else 0.6, calibrations=MIXED,
                              noise=0.02), "C4")
        assert row["verdict"] == "not supported" and row["note"].count("0 of 18 gains")

    def test_without_mixtures_cannot_tell(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.6), "C4")
        assert row["verdict"] == "cannot tell" and "mixture" in row["note"]


RANKED = dict(zip(LANGUAGES, [0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6], strict=True))


class TestOrderOfLanguages:
    def test_supported_when_the_order_turns_round(self):
        row = verdict(answers(lambda m, h, c, x, t: 1.45 - RANKED[x], dense=lambda x, t: RANKED[x]), "C5")
        assert row["verdict"] == "supported" and row["statistic"] < 0

    def test_contradicted_when_it_stays(self):
        row = verdict(answers(lambda m, h, c, x, t: RANKED[x] - 0.05, dense=lambda x, t: RANKED[x], n=1500,
                              noise=0.02), "C5")
        assert row["verdict"] == "contradicted" and row["low"] > 0.9

    def test_not_supported_when_one_model_in_two_turns(self):
        def skill(m, h, c, x, t):
            return RANKED[x] if m == TWO[0] else 1.45 - RANKED[x]

        row = verdict(answers(skill, models=TWO, dense=lambda x, t: RANKED[x]), "C5")
        assert row["verdict"] == "not supported"

    def test_equal_languages_cannot_tell(self):
        for seed in range(5):
            row = verdict(answers(lambda m, h, c, x, t: 0.7, dense=0.75, n=60, seed=seed), "C5")
            assert row["verdict"] == "cannot tell"


class TestMethodsByTask:
    def test_supported_when_each_wins_one(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.7 if (h == "wanda") == (t == "knowledge") else 0.6,
                              methods=METHODS), "C6")
        assert row["verdict"] == "supported" and row["statistic"] == 0.5

    def test_contradicted_when_one_wins_all(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.7 if h == "sparsegpt" else 0.6, methods=METHODS), "C6")
        assert row["verdict"] == "contradicted" and row["statistic"] == 0

    def test_not_supported_when_one_sweeps_one_model(self):
        row = verdict(answers(lambda m, h, c, x, t: 0.7 if (h == "wanda") == (t == "knowledge" or m == TWO[0])
                              else 0.6, models=TWO, methods=METHODS), "C6")
        assert row["verdict"] == "not supported"

    def test_wide_intervals_and_one_method_cannot_tell(self):
        few = answers(lambda m, h, c, x, t: 0.65, methods=METHODS, calibrations=["en"], n=40, noise=0.5)
        assert verdict(few, "C6")["verdict"] == "cannot tell"
        row = verdict(answers(lambda m, h, c, x, t: 0.65), "C6")
        assert row["verdict"] == "cannot tell" and "wanda only" in row["note"]


class TestSmallAndLarge:
    BOTH = [TWO[0], "Meta-Llama-3-8B-Instruct"]

    @staticmethod
    def pattern(model, calibration, language):
        return 0.01 * ((LANGUAGES.index(calibration) + 3 * LANGUAGES.index(language)) % 7)

    def test_both_ways(self):
        same = segment_nll(self.pattern, models=self.BOTH, seeds=(0,), noise=0.005)
        assert verdict({"segment_nll": same}, "C7")["verdict"] == "contradicted"
        other = segment_nll(lambda m, c, x: self.pattern(m, c, x) * (-1 if m == TWO[0] else 1),
                            models=self.BOTH, seeds=(0,), noise=0.005)
        row = verdict({"segment_nll": other}, "C7")
        assert row["verdict"] == "supported" and row["high"] < 0.5

    def test_small_models_only_cannot_tell(self):
        row = verdict({"segment_nll": segment_nll(self.pattern, seeds=(0,))}, "C7")
        assert row["verdict"] == "cannot tell" and all(m in row["note"] for m in TWO)

    def test_sizes_come_from_names(self):
        names = {"gemma-3-270m": 270e6, "smollm2-135m": 135e6, "CohereForAI/aya-23-8B": 8e9,
                 "Llama-3.2-1.5b": 1.5e9, "meta-llama/Meta-Llama-3-70B-Instruct": 70e9, "tiny-llama": None}
        assert {n: parameters(n) for n in names} == names


def subspaces(loss, noise=0.002, layers=9, methods=("wanda",), variants=("raw", "centred")) -> pd.DataFrame:
    """error = loss(part, calibration, relative depth); the raw form is nonsense that must not be read."""
    rng = np.random.default_rng(3)
    rows = []
    for model, method, calibration, language in grid(TWO, methods):
        for layer in range(layers):
            for part in ("agnostic", "specific"):
                for variant in variants:
                    error = loss(part, calibration, layer / max(layers - 1, 1)) + rng.normal(0, noise)
                    rows.append(setting(model, method, calibration) | {
                        "language": language, "layer": layer, "part": part, "variant": variant,
                        "error": 9.0 - error if variant == "raw" else error, "cosine": 0.9})
    return pd.DataFrame(rows)


class TestUniformLoss:
    def test_supported(self):
        row = verdict({"subspaces": subspaces(lambda p, c, d: 0.3 if p == "agnostic" else 0.1)}, "C8")
        assert row["verdict"] == "supported" and row["statistic"] == pytest.approx(2 / 3, abs=0.01)
        assert "42 of 42 pairs" in row["note"]

    def test_contradicted_by_one_language_or_by_the_other_part(self):
        one = subspaces(lambda p, c, d: (0.3 if p == "agnostic" else 0.1) + 0.1 * (c == "sw"))
        assert verdict({"subspaces": one}, "C8")["verdict"] == "contradicted"
        reverse = subspaces(lambda p, c, d: 0.1 if p == "agnostic" else 0.3)
        assert verdict({"subspaces": reverse}, "C8")["verdict"] == "contradicted"

    def test_noise_cannot_tell(self):
        noisy = subspaces(lambda p, c, d: 0.3 if p == "agnostic" else 0.1, noise=0.2, layers=3)
        assert verdict({"subspaces": noisy}, "C8")["verdict"] == "cannot tell"

    def test_one_part_cannot_tell(self):
        frame = subspaces(lambda p, c, d: 0.3).query("part == 'specific'")
        row = verdict({"subspaces": frame}, "C8")
        assert row["verdict"] == "cannot tell" and "agnostic" in row["note"]


class TestDepthOfLoss:
    @pytest.mark.parametrize(("loss", "expected"), [
        (lambda p, c, d: 0.1 + 0.4 * d, "supported"), (lambda p, c, d: 0.5 - 0.4 * d, "contradicted"),
        (lambda p, c, d: 0.3, "not supported")])
    def test_known_depths(self, loss, expected):
        assert verdict({"subspaces": subspaces(loss)}, "C9")["verdict"] == expected

    def test_noise_and_one_layer_cannot_tell(self):
        row = verdict({"subspaces": subspaces(lambda p, c, d: 0.3, noise=0.6)}, "C9")
        assert row["verdict"] == "cannot tell"
        row = verdict({"subspaces": subspaces(lambda p, c, d: 0.3, layers=1)}, "C9")
        assert row["verdict"] == "cannot tell" and "one layer" in row["note"]


def mask_overlap(within, between, noise=0.002) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    rows = []
    for model in TWO:
        for k, a in enumerate(LANGUAGES):
            for b in LANGUAGES[k:]:
                for layer in range(3):
                    for module in ("q_proj", "down_proj"):
                        base = within if a == b else between - 0.02 * (layer == 2 and module == "q_proj")
                        rows.append(setting(model, "wanda", a) | {
                            "n_samples": 48, "other_method": "wanda", "other_calibration": b, "other_budget": "rest",
                            "layer": layer, "module": module, "jaccard": base + rng.normal(0, noise), "chance": 1 / 3})
    return pd.DataFrame(rows)


class TestMaskChange:
    def test_both_ways(self):
        row = verdict({"mask_overlap": mask_overlap(0.9, 0.8)}, "C10")
        assert row["verdict"] == "supported" and "layer 2, q_proj" in row["note"] and row["n"] == 7
        assert row["statistic"] == pytest.approx(0.1 + 0.02 / 6, abs=0.003)
        assert verdict({"mask_overlap": mask_overlap(0.8, 0.8)}, "C10")["verdict"] == "contradicted"

    def test_draws_with_common_segments_say_nothing(self):
        frame = mask_overlap(0.8, 0.8)
        shared = frame.assign(n_samples=64, other_budget="tokens", jaccard=np.where(
            frame["calibration"] == frame["other_calibration"], 0.99, 0.5))
        assert verdict({"mask_overlap": pd.concat([frame, shared])}, "C10")["verdict"] == "contradicted"
        assert "common segments" in verdict({"mask_overlap": shared}, "C10")["note"]

    def test_noise_or_no_ceiling_cannot_tell(self):
        row = verdict({"mask_overlap": mask_overlap(0.8, 0.79, noise=0.1)}, "C10")
        assert row["verdict"] == "cannot tell"
        frame = mask_overlap(0.9, 0.8).query("calibration != other_calibration")
        row = verdict({"mask_overlap": frame}, "C10")
        assert row["verdict"] == "cannot tell" and "of one language" in row["note"]


def neurons(new, lost, dense=100) -> pd.DataFrame:
    """new: share of specific neurons that are new, for all languages or by language."""
    rng = np.random.default_rng(5)
    rows = [setting(TWO[0], "dense", "none") | {"language": x, "layer": k, "neurons": dense, "kept": dense}
            for x in LANGUAGES for k in range(3)]
    for sparsity in (0.2, 0.5):
        for _, _, calibration, language in grid(TWO[:1], ["wanda"]):
            for layer in range(3):
                kept = dense - rng.binomial(dense, lost)
                fresh = rng.binomial(dense, new.get(language, 0) if isinstance(new, dict) else new)
                rows.append(setting(TWO[0], "wanda", calibration, sparsity=sparsity) | {
                    "language": language, "layer": layer, "neurons": kept + fresh, "kept": kept})
    return pd.DataFrame(rows)


class TestNeuronNoise:
    def test_both_ways(self):
        row = verdict({"neurons": neurons(0.2, 0.3)}, "C11")
        assert row["verdict"] == "supported" and row["statistic"] == pytest.approx(0.2, abs=0.02)
        assert verdict({"neurons": neurons(0.01, 0.3)}, "C11")["verdict"] == "contradicted"

    def test_borderline_one_sparsity_or_no_dense_cannot_tell(self):
        assert verdict({"neurons": neurons({"ar": 0.3, "zh": 0.2}, 0.3)}, "C11")["verdict"] == "cannot tell"
        frame = neurons(0.2, 0.3)
        assert "sparsity 0.2" in verdict({"neurons": frame.query("sparsity != 0.2")}, "C11")["note"]
        assert "dense" in verdict({"neurons": frame.query("method != 'dense'")}, "C11")["note"]

    def test_a_language_without_neurons_is_counted(self):
        frame = neurons(0.2, 0.3)
        frame.loc[frame["language"] == "sw", ["neurons", "kept"]] = 0
        row = verdict({"neurons": frame}, "C11")
        assert row["verdict"] == "supported" and row["n"] == 6 and "1 model-language" in row["note"]


QUALITY = dict(zip(LANGUAGES, np.linspace(0, 0.3, 7), strict=True))  # of a calibration language, for accuracy


def stand_ins(bits, skill=lambda m, h, c, x, t: 0.5 + QUALITY[c], **options) -> dict[str, pd.DataFrame]:
    tables = answers(skill, **({"noise": 0.05, "dense": 0.85} | options))
    frame = segment_nll(bits, models=TWO[:1], methods=["wanda"], seeds=(0,), n=20, noise=0.002)
    return tables | {"segment_nll": frame}


class TestStandIns:
    def test_supported_when_neither_ranks_like_accuracy(self):
        def skill(m, h, c, x, t):  # another order of calibrations in each language, none that of perplexity
            return 0.5 + 0.05 * ((LANGUAGES.index(c) * (LANGUAGES.index(x) + 1 if x != "zh" else 3)
                                  + LANGUAGES.index(x)) % 7)

        row = verdict(stand_ins(lambda m, c, x: -0.1 * (c == x), skill), "C12")
        assert row["verdict"] == "supported" and row["high"] < 0.7

    def test_contradicted_when_perplexity_ranks_like_accuracy(self):
        row = verdict(stand_ins(lambda m, c, x: -QUALITY[c]), "C12")
        assert row["verdict"] == "contradicted" and row["low"] > 0.7

    def test_contradicted_when_only_english_does(self):
        row = verdict(stand_ins(lambda m, c, x: QUALITY[c]), "C12")
        assert row["verdict"] == "contradicted" and row["statistic"] < 0

    def test_noise_in_accuracy_cannot_tell(self):
        for seed in range(3):
            tables = stand_ins(lambda m, c, x: -QUALITY[c], lambda m, h, c, x, t: 0.6, noise=0.2, seed=seed)
            row = verdict(tables, "C12")
            assert row["verdict"] == "cannot tell" and "attainable" in row["note"]

    def test_without_perplexity_cannot_tell(self):
        tables = stand_ins(lambda m, c, x: 0.0)
        row = verdict(tables | {"segment_nll": pd.DataFrame({"cell": []})}, "C12")
        assert row["verdict"] == "cannot tell" and "segment_nll" in row["note"]


class TestTable:
    def test_nothing_measured(self):
        for tables in ({}, {name: pd.DataFrame({"cell": []}) for c in claims.CLAIMS for name in c.tables}):
            table = claims.verdicts(tables)
            assert list(table["id"]) == [f"C{k}" for k in range(1, 13)]
            assert set(table["verdict"]) == {"cannot tell"} and table["note"].str.contains("missing").all()
            assert table["statistic"].isna().all() and list(table.loc[table["changed"] != "", "id"]) == ["C10"]

    def test_a_table_without_its_columns_is_named(self):
        bare = pd.DataFrame([setting("m", "wanda", "de")])
        table = claims.verdicts({name: bare for c in claims.CLAIMS for name in c.tables})
        assert set(table["verdict"]) == {"cannot tell"}
        assert table["note"].str.contains("lacks the column").all()

    @pytest.mark.filterwarnings("error")
    def test_holes_never_crash(self):
        """Every table with one value of each of its columns only, or with a ragged corner."""
        three = ["de", "en", "zh"]
        tables = answers(lambda m, h, c, x, t: 0.6, n=20, methods=METHODS, calibrations=[*three, "all"])
        tables |= {"segment_nll": segment_nll(target_helps, n=4),
                   "layer_error": layer_error(target_helps_snr),
                   "subspaces": subspaces(lambda p, c, d: 0.3, layers=2, variants=("centred",)),
                   "mask_overlap": mask_overlap(0.9, 0.8), "neurons": neurons(0.2, 0.3)}
        for name in ("segment_nll", "layer_error", "subspaces"):
            small = tables[name]["calibration"].isin(three) & tables[name]["language"].isin(three)
            tables[name] = tables[name][small]
        for name, frame in tables.items():
            readers = [c.id for c in claims.CLAIMS if name in c.tables]
            for column in ("model", "method", "calibration", "seed", "language", "task", "part", "layer"):
                if column not in frame or frame[column].nunique() == 1:
                    continue
                one = frame[column] == frame[column].iloc[-1]
                # all but one value, and a corner of that value, which leaves the grid ragged
                for hole in (~one, one & (frame["model"] == TWO[0]) & (frame["calibration"] == "de")):
                    found = claims.verdicts(tables | {name: frame[~hole]}, only=readers)
                    assert found["verdict"].isin(claims.VERDICTS).all()

    def test_dense_rows_alone_judge_nothing(self):
        tables = {"segment_nll": segment_nll(target_helps).assign(method="dense"),
                  "subspaces": subspaces(lambda p, c, d: 0.3).assign(method="dense")}
        assert set(claims.verdicts(tables)["verdict"]) == {"cannot tell"}

    def test_same_tables_same_verdicts(self):
        tables = {"segment_nll": segment_nll(target_helps, seeds=(0,), n=10)}
        tables |= answers(lambda m, h, c, x, t: 0.6, n=40, noise=0.05)
        shuffled = {name: t.sample(frac=1, random_state=0) for name, t in tables.items()}
        first, again, other = (claims.verdicts(t) for t in (tables, tables, shuffled))
        pd.testing.assert_frame_equal(first, again)
        pd.testing.assert_frame_equal(first, other)

    def test_words_stand_beside_code(self):
        for claim in claims.CLAIMS:
            assert "Supported:" in claim.rule and "Contradicted:" in claim.rule
            assert "cannot tell" in claim.rule.lower()
            assert "{" not in claim.rule  # every margin was put into the words

    def test_unknown_setting(self):
        with pytest.raises(InputError, match="windows.*allowed: sparsity"):
            claims.verdicts({}, {"windows": 128})
        with pytest.raises(InputError, match="C13.*allowed: C1,"):
            claims.verdicts({}, only=["C13"])


class TestGuide:
    """A line of advice for every verdict there can be, each of a claim that exists."""

    def test_advice_follows_the_verdict(self):
        found = claims.verdicts({})
        lines = claims.guide(found)
        assert set(lines["advice"]) == {"These tables do not tell: measure it on your own model and text."}
        shown = claims.guide(found.assign(verdict="supported")).set_index("claim")["advice"]
        denied = claims.guide(found.assign(verdict="contradicted")).set_index("claim")["advice"]
        assert shown["C1"].startswith("Text of that language") and denied["C1"].startswith("Not simply")
        assert (shown != denied).all() and shown.index.isin(found["id"]).all()

    def test_advice_is_for_verdicts_that_exist(self):
        assert all(set(line.advice) <= set(claims.VERDICTS) for line in LINES)

    def test_a_claim_without_a_verdict_is_refused(self):
        with pytest.raises(InputError, match="no verdict on C1, "):
            claims.guide(claims.verdicts({}, only=["C3"]))
