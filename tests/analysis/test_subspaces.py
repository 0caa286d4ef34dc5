"""LSAR against the paper's algorithm written out, on planted subspaces and on noise."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group

from lib.analysis.subspaces import VARIANTS, identification, lsar, parts, retrieval
from lib.errors import InputError

LANGUAGES = ["ar", "de", "en", "es", "ru"]
L, N, LAYERS, D = len(LANGUAGES), 60, 2, 48


def reference(means, r):
    """Algorithm 1 of the paper, step by step, with the means as columns."""
    M = means.T
    one = np.ones((M.shape[1], 1))
    c = M @ one / M.shape[1]
    W, S, Vt = np.linalg.svd(M - c @ one.T)
    B = c @ one.T + W[:, :r] @ np.diag(S[:r]) @ Vt[:r]
    x = np.linalg.pinv(B, rcond=1e-10).T @ one
    mu = x / np.linalg.norm(x) ** 2
    Ms = np.linalg.svd(B - mu @ one.T)[0][:, :r]
    return mu[:, 0], Ms


def planted(seed=0, offset=3.0, noise=0.02):
    """Content that parallel sentences share, a language offset in a known subspace, a common mean, and noise:
    (embeddings [L, N, LAYERS, D], basis [D, L - 1] of the language-specific subspace)."""
    rng = np.random.default_rng(seed)
    axes = ortho_group.rvs(D, random_state=seed)
    specific, rest = axes[:, :L - 1], axes[:, L - 1:]
    content = rng.standard_normal((N, LAYERS, D - L + 1)) @ rest.T
    language = offset * rng.standard_normal((L, L - 1)) @ specific.T
    common = 5 * rng.standard_normal(D)
    return content + language[:, None, None] + common + noise * rng.standard_normal((L, N, LAYERS, D)), specific


def damaged(dense, size=0.3, seed=9):
    return dense + size * np.random.default_rng(seed).standard_normal(dense.shape)


def table(rows, value, **where):
    """The values of the rows for which this holds."""
    return np.array([row[value] for row in rows if all(row[k] == v for k, v in where.items())])


@pytest.mark.parametrize("r", range(1, L))
def test_the_split_equals_the_papers_algorithm(r):
    means = np.random.default_rng(r).standard_normal((L, D)) + 4
    mu, Ms = reference(means, r)
    split = lsar(means, r)
    np.testing.assert_allclose(split.basis @ split.basis.T, Ms @ Ms.T, atol=1e-10)
    np.testing.assert_allclose(split.mu, mu, atol=1e-10)
    np.testing.assert_allclose(split.basis.T @ split.mu, 0, atol=1e-10)
    np.testing.assert_allclose(split.agnostic(split.mean), split.mu, atol=1e-10)
    np.testing.assert_allclose(split.specific(split.mean), split.mean - split.mu, atol=1e-10)


def test_means_around_the_origin_have_nothing_in_common():
    """There the paper's x is 0 and mu = x / ||x||^2 undefined; its limit is 0."""
    means = np.random.default_rng(0).standard_normal((L, D))
    split = lsar(means - means.mean(axis=0))
    np.testing.assert_allclose(split.mu, 0, atol=1e-12)
    assert split.basis.shape == (D, L - 1)


def test_a_planted_subspace_is_recovered_within_a_degree():
    embeddings, specific = planted()
    split = lsar(embeddings[:, ::2, 0].mean(axis=1))
    assert np.degrees(subspace_angles(split.basis, specific)).max() < 1
    other = ortho_group.rvs(D, random_state=5)[:, :L - 1]
    assert np.degrees(subspace_angles(split.basis, other)).max() > 30, "the angle tells subspaces apart"


def test_a_rotation_of_the_space_changes_nothing():
    dense, _ = planted()
    pruned = damaged(dense)
    turn = ortho_group.rvs(D, random_state=3)
    for rows in (parts, identification, retrieval):
        for a, b in zip(rows(dense, pruned, LANGUAGES), rows(dense @ turn, pruned @ turn, LANGUAGES), strict=True):
            if a["variant"] != "trimmed":  # which leaves out features, so the axes matter there
                assert a == pytest.approx(b)


@pytest.mark.parametrize("rank", [2, L - 1])
def test_parts_equal_a_loop_over_sentences(rank):
    dense, _ = planted()
    pruned = damaged(dense)
    rows = parts(dense, pruned, LANGUAGES, rank)
    assert len(rows) == L * LAYERS * 2 * len(VARIANTS)
    for layer in range(LAYERS):
        means = np.array([[dense[k, i, layer] for i in range(0, N, 2)] for k in range(L)]).mean(axis=1)
        mu, Ms = reference(means, rank)
        c = means.mean(axis=0)
        for variant, part_means, whole_mean in (("raw", (0, 0), 0), ("centred", (mu, c - mu), c)):
            for k, language in enumerate(LANGUAGES):
                pairs = {"agnostic": [], "specific": []}
                for i in range(1, N, 2):
                    e, p = dense[k, i, layer], pruned[k, i, layer]
                    pairs["agnostic"].append([x - Ms @ Ms.T @ x - part_means[0] for x in (e, p)])
                    pairs["specific"].append([Ms @ Ms.T @ x - part_means[1] for x in (e, p)])
                whole = sum(np.sum((dense[k, i, layer] - whole_mean) ** 2) for i in range(1, N, 2))
                for part, found in pairs.items():
                    energy = sum(e @ e for e, _ in found)
                    cosines = [e @ p / np.linalg.norm(e) / np.linalg.norm(p) for e, p in found]
                    where = {"language": language, "layer": layer, "part": part, "variant": variant}
                    error = sum((p - e) @ (p - e) for e, p in found) / energy
                    assert table(rows, "error", **where) == pytest.approx(error)
                    assert table(rows, "cosine", **where) == pytest.approx(np.mean(cosines))
                    assert table(rows, "share", **where) == pytest.approx(energy / whole)


def test_identical_embeddings_have_no_error():
    dense, _ = planted()
    rows = parts(dense, dense.copy(), LANGUAGES)
    assert set(table(rows, "error")) == {0.0}
    np.testing.assert_allclose(table(rows, "cosine"), 1, atol=1e-12)
    assert (table(rows, "share") == table(rows, "share_pruned")).all()


def test_shares_add_up_and_weigh_the_errors():
    dense, _ = planted()
    pruned = damaged(dense)
    rows = parts(dense, pruned, LANGUAGES)
    share, error = ([table(rows, name, part=part, variant="centred", layer=0) for part in ("agnostic", "specific")]
                    for name in ("share", "error"))
    np.testing.assert_allclose(share[0] + share[1], 1)
    e, p = dense[:, 1::2, 0], pruned[:, 1::2, 0]
    centre = dense[:, ::2, 0].mean(axis=(0, 1))
    whole = ((p - e) ** 2).sum(axis=(1, 2)) / ((e - centre) ** 2).sum(axis=(1, 2))
    np.testing.assert_allclose(share[0] * error[0] + share[1] * error[1], whole)


def test_damage_is_found_in_the_part_that_has_it():
    dense, specific = planted(noise=0)
    shift = np.random.default_rng(1).standard_normal((L, N, LAYERS, L - 1)) @ specific.T
    for pruned, hit, spared in ((dense + shift, "specific", "agnostic"),
                                (damaged(dense) - (damaged(dense) - dense) @ specific @ specific.T,
                                 "agnostic", "specific")):
        rows = [row for row in parts(dense, pruned, LANGUAGES) if row["variant"] != "trimmed"]
        assert table(rows, "error", part=spared).max() < 1e-20
        assert table(rows, "error", part=hit).min() > 1e-3


def test_a_raw_cosine_hides_what_the_centred_one_shows():
    dense, _ = planted()
    dense = dense + 200.0
    rows = parts(dense, damaged(dense, size=1.0), LANGUAGES)
    assert table(rows, "cosine", variant="raw", part="agnostic").min() > 0.99
    assert table(rows, "cosine", variant="centred", part="agnostic").max() < 0.9


def test_trimmed_equals_deleting_the_massive_feature_beforehand():
    dense, _ = planted()
    dense[..., 7] *= 300
    pruned = damaged(dense)
    trimmed = [r for r in parts(dense, pruned, LANGUAGES) if r["variant"] == "trimmed"]
    without = parts(np.delete(dense, 7, axis=3), np.delete(pruned, 7, axis=3), LANGUAGES)
    for a, b in zip(trimmed, [r for r in without if r["variant"] == "centred"], strict=True):
        assert a | {"variant": "centred"} == pytest.approx(b)


def test_the_split_never_sees_what_is_measured():
    dense, _ = planted()
    pruned = damaged(dense)
    rows = parts(dense, pruned, LANGUAGES)
    other = pruned.copy()
    other[:, ::2] = 0  # the half that gives the means is never measured
    assert parts(dense, other, LANGUAGES) == rows
    dense_other = dense.copy()
    dense_other[:, 1::2] = np.random.default_rng(8).permutation(dense[:, 1::2]) * 7  # nor the other way round
    for rows_of in (identification, retrieval):
        assert rows_of(dense_other, pruned, LANGUAGES) == rows_of(dense, pruned, LANGUAGES)


def test_languages_are_identified_and_translations_found():
    dense, _ = planted(offset=30.0)
    assert set(table(identification(dense, dense, LANGUAGES), "accuracy")) == {1.0}
    rows = retrieval(dense, dense, LANGUAGES)
    assert len(rows) == L * (L - 1) * LAYERS * 2 * len(VARIANTS)
    assert {r["chance"] for r in rows} == {2 / N}
    assert table(rows, "accuracy", part="agnostic", variant="centred").min() == 1.0
    dense, specific = planted(offset=30.0)
    dialect = 10 * np.random.default_rng(4).standard_normal((L, N, LAYERS, L - 1)) @ specific.T
    rows = retrieval(dense, dense + dialect, LANGUAGES)
    assert table(rows, "accuracy", part="agnostic", variant="centred").min() == 1.0
    assert table(rows, "accuracy", part="whole", variant="centred").mean() < 0.5, "the offset hides the content"


def test_retrieval_equals_a_loop_over_sentences():
    dense, _ = planted()
    pruned = damaged(dense, size=1.5)
    rows = retrieval(dense, pruned, LANGUAGES, variants=["raw"])
    _, Ms = reference(dense[:, ::2, 1].mean(axis=1), L - 1)
    for a, b in ((0, 1), (1, 0), (4, 2)):
        hits = 0
        for i in range(1, N, 2):
            x = pruned[a, i, 1] - Ms @ Ms.T @ pruned[a, i, 1]
            cosines = {}
            for j in range(1, N, 2):
                y = pruned[b, j, 1] - Ms @ Ms.T @ pruned[b, j, 1]
                cosines[j] = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
            hits += max(cosines, key=cosines.get) == i
        found = table(rows, "accuracy", language=LANGUAGES[a], other=LANGUAGES[b], layer=1, part="agnostic")
        assert found == pytest.approx(hits / (N // 2)) and 0.05 < hits / (N // 2) < 1


def test_nothing_is_found_without_content_or_without_language():
    """Pruned states that are noise: retrieval at 1/n. Shuffled labels: identification at 1/L."""
    dense, _ = planted(offset=30.0)
    noise = np.random.default_rng(2).standard_normal(dense.shape)
    chance = 2 / N
    hits = table(retrieval(dense, noise, LANGUAGES, variants=["centred"]), "accuracy", part="agnostic")
    assert abs(hits.mean() - chance) < 4 * np.sqrt(chance / (hits.size * N / 2))
    shuffled = [table(identification(dense, dense, LANGUAGES, control="shuffled", seed=s), "accuracy")
                for s in range(5)]
    shuffled = np.concatenate(shuffled)
    # Languages of one sentence exclude each other and both layers share the offsets: allow twice the usual error.
    assert abs(shuffled.mean() - 1 / L) < 4 * 2 * np.sqrt(1 / L * (1 - 1 / L) / (5 * L * N / 2))


def test_shuffled_labels_do_not_find_the_planted_subspace():
    """Damage inside it stays inside for the true split only."""
    dense, specific = planted(offset=0.3, noise=0.001)
    pruned = dense + np.random.default_rng(1).standard_normal((L, N, LAYERS, L - 1)) @ specific.T
    found, null = (table(parts(dense, pruned, LANGUAGES, control=c), "error", part="agnostic", variant="centred")
                   for c in ("none", "shuffled"))
    assert found.max() < 1e-3 < 0.05 < null.min()


def test_a_random_subspace_gets_a_share_of_its_dimension():
    dense = np.random.default_rng(3).standard_normal((L, N, LAYERS, D))
    share = table(parts(dense, dense, LANGUAGES, control="random"), "share", part="specific", variant="centred")
    assert share.mean() == pytest.approx((L - 1) / D, rel=0.15)
    real, _ = planted(offset=30.0)
    found = table(identification(real, real, LANGUAGES, control="random"), "accuracy")
    assert found.mean() > 1 / L, "a random subspace sees a part of large offsets"


def test_noise_has_the_norm_of_the_pruning_error_and_no_direction():
    dense, specific = planted()
    shift = np.random.default_rng(1).standard_normal((L, N, LAYERS, L - 1)) @ specific.T
    rows = parts(dense, dense + shift, LANGUAGES, control="noise")
    share, error = ({part: table(rows, name, part=part, variant="raw") for part in ("agnostic", "specific")}
                    for name in ("share", "error"))
    size = sum(share[part] * error[part] for part in share)
    e = dense[:, 1::2]
    expected = (shift[:, 1::2] ** 2).sum(axis=(1, 3)) / (e ** 2).sum(axis=(1, 3))
    assert sorted(size[:]) == pytest.approx(sorted(expected.T.ravel()))
    specific_share = (share["specific"] * error["specific"]) / size
    assert specific_share.mean() == pytest.approx((L - 1) / D, rel=0.15)


def test_the_same_seed_gives_the_same_rows():
    dense, _ = planted()
    pruned = damaged(dense)
    for control in ("shuffled", "random", "noise"):
        once, again, other = (parts(dense, pruned, LANGUAGES, control=control, seed=s) for s in (1, 1, 2))
        assert once == again != other


def test_what_cannot_be_split_is_refused():
    dense, _ = planted()
    for rank in (0, L, L + 1):
        with pytest.raises(InputError, match=f"rank {rank} .* number of languages minus 1"):
            parts(dense, dense, LANGUAGES, rank)
    with pytest.raises(InputError, match="differ in 3 direction"):
        lsar(dense[[0, 1, 2, 3, 0], ::2, 0].mean(axis=1))
    with pytest.raises(InputError, match="dense .* and pruned"):
        parts(dense, dense[:, :-1], LANGUAGES)
    with pytest.raises(InputError, match="for 4 languages"):
        retrieval(dense, dense, LANGUAGES[:-1])
    with pytest.raises(InputError, match="allowed variants: raw, centred, trimmed"):
        retrieval(dense, dense, LANGUAGES, variants=["centered"])
    with pytest.raises(InputError, match="controls: none, shuffled, random, noise"):
        identification(dense, dense, LANGUAGES, control="label")
    dense[0, 0, 0, 0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        parts(dense, dense, LANGUAGES)
