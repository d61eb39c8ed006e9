"""What is said of a folder that cannot be trained: one line, what and what to do."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file
from support.glm4v_folder import INDEX, write_published

from swift_vlrft.chatglm4v.checkpoint import check_checkpoint


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("published") / "glm-4v-9b")


@pytest.fixture
def folder(published, tmp_path):
    return shutil.copytree(published, tmp_path / published.name)


def change(folder, values):
    kept = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(kept | values))


def drop_vision(folder, *keys):
    values = json.loads((folder / "config.json").read_text())
    for key in keys:
        del values["vision_config"][key]
    if not keys:
        del values["vision_config"]
    (folder / "config.json").write_text(json.dumps(values))


def test_a_published_folder_is_read_and_its_code_never_run(published):
    note = check_checkpoint(published)
    assert note == (
        f"{published}: its own code (configuration_chatglm.py, modeling_chatglm.py, "
        "tokenization_chatglm.py) is not run; swift_vlrft.chatglm4v stands in"
    )


SHARD = "model-00002-of-00002.safetensors"


def pointer(folder):
    (folder / SHARD).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def cut(folder):
    content = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(content[: len(content) // 2])


def renamed(folder, rename, shape=None):
    weights = load_file(folder / SHARD)
    name = next(name for name in weights if name.endswith("query_key_value.weight"))
    value = weights.pop(name)
    weights[rename(name)] = value if shape is None else value[:shape].clone()
    save_file(weights, folder / SHARD)


@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json cannot be read"),
        (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda f: (f / "config.json").write_text("[]"), "model_type is None; GLM-4V's is 'chat"),
        (lambda f: change(f, {"model_type": "glm4v"}), "model_type is 'glm4v'; GLM-4V's is"),
        (lambda f: drop_vision(f), "has no vision_config"),
        (
            lambda f: drop_vision(f, "scaling_factor", "num_positions"),
            "vision_config lacks num_positions, scaling_factor; download the current revision of",
        ),
        (lambda f: change(f, {"quantization_bit": 4}), "quantization_bit=4: only the architecture"),
        (lambda f: change(f, {"num_layers": 3}), "weights are missing (transformer.encoder.layers"),
        (lambda f: change(f, {"hidden_size": 128}), "have another shape (transformer."),
        (lambda f: (f / "tokenizer.model").unlink(), "has no tokenizer.model; download the"),
        (lambda f: (f / SHARD).unlink(), f"{SHARD}, named in {INDEX}, is missing"),
        (
            lambda f: [s.unlink() for s in f.glob("*.safetensors")],
            f", named in {INDEX}, is missing; download",
        ),
        (lambda f: (f / INDEX).unlink(), "the index of the shards of the weights is missing"),
        (lambda f: (f / INDEX).write_text("{}"), f"every shard, named in {INDEX}, is missing"),
        (pointer, f"{SHARD} is a pointer of Git LFS, not the weights: run git lfs pull"),
        (cut, "bytes, its header says"),
        (lambda f: (f / SHARD).write_bytes(b""), "is no complete safetensors file (0 bytes)"),
        (lambda f: renamed(f, lambda n: n.replace("encoder", "x")), "1 weights are missing (tra"),
        (lambda f: renamed(f, lambda n: n.replace("encoder", "x")), "1 are unknown (transformer.x"),
        (lambda f: renamed(f, str, shape=3), "1 have another shape (transformer."),
        (
            lambda f: (
                [s.unlink() for s in f.glob("model*")],
                (f / "pytorch_model-00001-of-00002.bin").write_bytes(b""),
            ),
            "its weights are pickles, of an old revision; download the",
        ),
        (lambda f: [s.unlink() for s in f.glob("model*")], "there are no weights; download the"),
    ],
)
def test_one_line_says_what_is_wrong_and_what_to_do(folder, break_it, expected):
    break_it(folder)
    with pytest.raises(ValueError, match="glm-4v-9b") as error:
        check_checkpoint(folder)
    text = str(error.value)
    assert expected in text and "\n" not in text
