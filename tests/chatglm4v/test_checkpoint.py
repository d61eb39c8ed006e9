"""What is said of a folder that cannot be trained: one line that names what is wrong."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file
from support.glm4v_folder import INDEX, write_published

from swift_vlrft.chatglm4v.checkpoint import check_checkpoint

pytestmark = pytest.mark.slow  # torch is imported

SHARD = "model-00002-of-00002.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("published") / "glm-4v-9b")


@pytest.fixture
def folder(published, tmp_path):
    return shutil.copytree(published, tmp_path / published.name)


def test_a_published_folder_is_read_and_its_code_never_run(published):
    note = check_checkpoint(published)
    code = "(configuration_chatglm.py, modeling_chatglm.py, tokenization_chatglm.py)"
    assert note.startswith(f"{published}: ") and code in note


def change(folder, **values):
    kept = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(kept | values))


def vision_without(folder, *keys):
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    change(folder, vision_config={k: v for k, v in vision.items() if k not in keys})


def change_weight(folder, name="encoder", rows=None):
    """One weight of a shard under another name, or with fewer rows."""
    weights = load_file(folder / SHARD)
    old = next(name for name in weights if name.endswith("query_key_value.weight"))
    weights[old.replace("encoder", name)] = weights.pop(old)[:rows].clone()
    save_file(weights, folder / SHARD)


def only_pickles(folder):
    for file in folder.glob("model*"):
        file.unlink()
    (folder / "pytorch_model-00001-of-00002.bin").write_bytes(b"")


BROKEN = [
    (lambda f: (f / "config.json").unlink(), "config.json"),
    (lambda f: (f / "config.json").write_text("{"), "config.json"),
    (lambda f: (f / "config.json").write_text("[]"), "model_type is None"),
    (lambda f: change(f, model_type="glm4v"), "model_type is 'glm4v'"),
    (lambda f: change(f, vision_config=None), "no vision_config"),
    (lambda f: vision_without(f, "scaling_factor", "num_positions"), "num_positions, scaling_f"),
    (lambda f: change(f, quantization_bit=4), "quantization_bit=4"),
    (lambda f: change(f, num_layers=3), "missing (transformer.encoder.layers.2."),
    (lambda f: change(f, hidden_size=128), "another shape (transformer."),
    (lambda f: change_weight(f, name="x"), "1 weights are missing (transformer.encoder"),
    (lambda f: change_weight(f, name="x"), "1 are unknown (transformer.x"),
    (lambda f: change_weight(f, rows=3), "1 have another shape (transformer.encoder"),
    (lambda f: (f / "tokenizer.model").unlink(), "no tokenizer.model"),
    (lambda f: (f / SHARD).unlink(), f"{SHARD}, named in {INDEX}"),
    (lambda f: (f / SHARD).write_text(POINTER), f"{SHARD} is a pointer of Git LFS"),
    (lambda f: (f / INDEX).unlink(), "index"),
    (only_pickles, "pickles"),
]


@pytest.mark.parametrize(("break_it", "named"), BROKEN, ids=[named for _, named in BROKEN])
def test_one_line_names_what_is_wrong(folder, break_it, named):
    break_it(folder)
    with pytest.raises(ValueError, match="glm-4v-9b") as error:
        check_checkpoint(folder)
    assert named in str(error.value) and "\n" not in str(error.value)
