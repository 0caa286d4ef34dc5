"""What names of released checkpoints say, and where their files are looked for."""

import os
import subprocess
import sys

import pytest

from lib.errors import InputError
from lib.inputs import models, released
from lib.inputs.released import Release, parse
from lib.paths import ROOT

READ = {
    # as they stand in the hub organisation
    "multilingual-pruning/pruned-llama3-8b-instruct-wanda-0.5-unstructured-mc4-de-0":
        Release("llama3-8b-instruct", "wanda", 0.5, "unstructured", "mc4", "de", 0),
    "multilingual-pruning/pruned-pruned-aya-23-8b-wanda-0.5-unstructured-mc4-es-42":
        Release("aya-23-8b", "wanda", 0.5, "unstructured", "mc4", "es", 42),
    "multilingual-pruning/pruned-pruned-llama3-8b-instruct-wanda-0.5-2to4-mc4-zh-1234":
        Release("llama3-8b-instruct", "wanda", 0.5, "2:4", "mc4", "zh", 1234),
    "multilingual-pruning/pruned-pruned-aya-23-8b-sparsegpt-0.5-unstructured-hellaswag-hi-42":
        Release("aya-23-8b", "sparsegpt", 0.5, "unstructured", "hellaswag", "hi", 42),
    "multilingual-pruning/pruned-llama3-8b-instruct-wanda-0.3-unstructured-mc4-es":
        Release("llama3-8b-instruct", "wanda", 0.3, "unstructured", "mc4", "es", None),
    "multilingual-pruning/pruned-llama3-70b-instruct-wanda-0.5-unstructured-mc4-sw-0@refs/pr/1":
        Release("llama3-70b-instruct", "wanda", 0.5, "unstructured", "mc4", "sw", 0),
    # tolerated
    "/some@where/pruned-Meta-Llama-3-8B-Instruct-SparseGPT-50-2:4-mC4-de-en-seed7/":
        Release("Meta-Llama-3-8B-Instruct", "sparsegpt", 0.5, "2:4", "mc4", "de+en", 7),
    "pruned-aya-23-8B-wanda-.5-2_4-mC4-ar_de_en_es-42":
        Release("aya-23-8B", "wanda", 0.5, "2:4", "mc4", "ar+de+en+es", 42),
    "pruned-tiny-llama-magnitude-20-4-8-home-de+en":
        Release("tiny-llama", "magnitude", 0.2, "4:8", "home", "de+en", None),
    "pruned-a-wanda-0.5-b-sparsegpt-0.1-unstructured-mc4-fil-1":
        Release("a-wanda-0.5-b", "sparsegpt", 0.1, "unstructured", "mc4", "fil", 1),
}


@pytest.mark.parametrize("source", READ)
def test_a_name_is_read_from_the_right(source):
    assert parse(source) == READ[source]


@pytest.mark.parametrize("name", [
    "Meta-Llama-3-8B-Instruct", "llama3-wanda-0.5-unstructured-mc4-de-0", "pruned-wanda-0.5-unstructured-mc4-de-0",
    "pruned-llama3-gradient-0.5-unstructured-mc4-de-0", "pruned-llama3-wanda-0-unstructured-mc4-de-0",
    "pruned-llama3-wanda-1.5-unstructured-mc4-de-0", "pruned-llama3-wanda-100-unstructured-mc4-de-0",
    "pruned-llama3-wanda-0.5-structured-mc4-de-0", "pruned-llama3-wanda-0.5-unstructured-de-0",
    "pruned-llama3-wanda-0.5-unstructured-mc4-german-0", "pruned-llama3-wanda-0.5-unstructured-mc4-0", ""])
def test_a_name_that_does_not_fit_is_refused_with_the_scheme(name):
    with pytest.raises(InputError, match="pruned-<model>-<method>-<ratio>-<type>-<corpus>-<languages>-<seed>"):
        parse(name)


def test_the_dense_model_is_named():
    assert parse("pruned-llama3-8b-instruct-wanda-0.5-2to4-mc4-de-0").original == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert parse("pruned-Aya-23-8B-wanda-0.5-2to4-mc4-de-0").original == "CohereLabs/aya-23-8B"
    assert parse("pruned-tiny-llama-wanda-0.5-2to4-home-de-0").original == "tiny-llama"


def test_pickles_are_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(InputError, match="can run code when they are opened and are refused"):
        released.folder(str(tmp_path))


@pytest.mark.parametrize("source", ["", "nowhere", "a/b/c", "/nowhere/at/all"])
def test_what_is_no_place_is_refused(source):
    with pytest.raises(InputError, match="is no folder, and no hub id"):
        released.folder(source)


def test_a_folder_is_found_and_a_hub_id_in_the_hubs_cache(tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--someone--pruned"
    snapshot = repository / "snapshots" / commit
    models.load("tiny-llama")[0].save_pretrained(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert released.folder(str(snapshot)) == snapshot
    code = "from lib.inputs import released; print(released.folder('someone/pruned'))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True,
                          env=os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}).stdout
    assert said.strip() == str(snapshot)
    code = "from lib.inputs import released; released.folder('someone/else')"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          env=os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}).stderr
    assert "InputError: model someone/else cannot be had" in said and "`hf download someone/else`" in said
