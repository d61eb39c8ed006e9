"""Which checkpoints are complete: of every kind that ms-swift writes, whole, cut off and with a
file missing.
"""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from swift_vlrft.files.checkpoints import good_checkpoints, why_not


def tensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(256)


def saved(pickled: bytes = b"\x80\x02}." * 20) -> bytes:
    """As torch.save writes it: a zip file that is not compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", bytes(100))
    return file.getvalue()


def state(**more: object) -> bytes:
    return json.dumps({"global_step": 4, "log_history": [{"loss": 0.1}]} | more, indent=2).encode()


def files(*, ranks: int = 1, weights: str = "model", engine: str = "", **args: object) -> dict:
    """Name to content, as the run of ms-swift 4.6.0 that the test's name says leaves them."""
    saving = [f"{weights}.safetensors"] * (weights not in ("shards", "none"))
    if weights == "shards":
        saving = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    content = dict.fromkeys(saving, tensors())
    if weights == "shards":
        index = {"weight_map": dict(zip("ab", saving, strict=True))}
        content["model.safetensors.index.json"] = json.dumps(index).encode()
    content["adapter_config.json" if weights == "adapter_model" else "config.json"] = b"{}"
    pickles = ["training_args.bin"]
    if not args.get("save_only_model"):
        pickles += [f"rng_state_{n}.pth" for n in range(ranks)] if ranks > 1 else ["rng_state.pth"]
        parts = [f"zero_pp_rank_{n}_mp_rank_00" for n in range(ranks)]
        of_model = {"zero2": ["mp_rank_00"], "zero3": parts}.get(engine, [])
        pickles += [f"global_step4/{name}_model_states.pt" for name in of_model]
        if engine:
            pickles += [f"global_step4/bf16_{name}_optim_states.pt" for name in parts]
            content["latest"] = b"global_step4"
        else:
            pickles += ["optimizer.pt", "scheduler.pt"]
    content |= dict.fromkeys(pickles, saved())
    content["trainer_state.json"] = state()
    sizes = {"global_world_size": ranks, "local_world_size": ranks}
    content["args.json"] = state(**sizes, **{"save_only_model": False} | args)
    return content


def fsdp(*names: str) -> dict:
    """As accelerate saves it (fsdp_utils.py)."""
    content = files(ranks=2, weights="none")
    del content["optimizer.pt"]
    return dict.fromkeys(names, saved()) | content


KINDS = {
    "lora": files(weights="adapter_model"),
    "full": files(),
    "shards": files(weights="shards"),
    "two processes": files(ranks=2),
    "zero2, lora": files(ranks=2, weights="adapter_model", engine="zero2"),
    "zero3": files(ranks=2, weights="shards", engine="zero3"),
    "zero3, not gathered": files(ranks=2, weights="none", engine="zero3"),
    "save_only_model": files(ranks=2, save_only_model=True),
    "fsdp": fsdp(
        *("pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp"),
        *("optimizer_0/.metadata", "optimizer_0/__0_0.distcp"),
    ),
    "fsdp, FULL_STATE_DICT": fsdp("pytorch_model_fsdp.bin", "optimizer.bin"),
}


def write(folder: Path, content: dict[str, bytes]) -> Path:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_complete_whole_and_not_before_its_last_file(kind, tmp_path):
    content = dict(KINDS[kind])
    checkpoint = tmp_path / "checkpoint-4"
    checkpoint.mkdir()
    state = content.pop("trainer_state.json")
    for name, data in content.items():  # in the order of writing
        assert why_not(checkpoint)
        write(checkpoint, {name: data})
    assert why_not(checkpoint)
    write(checkpoint, {"trainer_state.json": state})
    assert why_not(checkpoint) == "" and good_checkpoints(tmp_path) == [checkpoint]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_settings_that_are_cut_off_are_noticed(kind, tmp_path):
    checkpoint = write(tmp_path / "checkpoint-4", KINDS[kind])
    for name, whole in KINDS[kind].items():
        file = checkpoint / name
        if file.suffix in (".safetensors", ".json"):
            for length in {0, 1, min(7, len(whole) // 2), len(whole) // 2, len(whole) - 1}:
                file.write_bytes(whole[:length])
                assert file.name in why_not(checkpoint), (name, length)
        file.unlink()
        # Going on can do without the arguments: they are given again.
        if file.suffix in (".safetensors", ".json") and name != "args.json":
            assert why_not(checkpoint), name
        file.write_bytes(whole)


@pytest.mark.parametrize(
    ("kind", "name", "new", "why"),
    [
        ("full", "model.safetensors", bytes(4096), "model.safetensors"),
        ("full", "trainer_state.json", b"[]", "trainer_state.json"),
        ("full", "trainer_state.json", b"\0" * 99, "trainer_state.json"),
        ("shards", "model.safetensors.index.json", b"{}", "every shard"),
        ("shards", "model.safetensors.index.json", b'{"weight_map": 3}', "every shard"),
        ("full", "args.json", state(global_world_size="many"), ""),
    ],
)
def test_other_damage(kind, name, new, why, tmp_path):
    folder = write(tmp_path / "checkpoint-4", KINDS[kind] | {name: new})
    assert why in why_not(folder) and bool(why) == bool(why_not(folder))


def test_good_checkpoints_are_in_the_order_of_their_steps(tmp_path):
    for name in ("checkpoint-4", "checkpoint-10", "checkpoint-2", "checkpoint-18-merged"):
        write(tmp_path / name, KINDS["lora"])
    write(tmp_path / "checkpoint-12", {"adapter_model.safetensors": tensors()})
    (tmp_path / "checkpoint-14").mkdir()
    (tmp_path / "checkpoint-16").write_text("a file")
    (tmp_path / "last-checkpoint").symlink_to("checkpoint-10")
    names = [folder.name for folder in good_checkpoints(tmp_path)]
    assert names == ["checkpoint-2", "checkpoint-4", "checkpoint-10"]


class Harm:
    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_nothing_is_unpickled(tmp_path):
    harmful = saved(pickle.dumps(Harm(tmp_path / "harmed")))
    folder = write(tmp_path / "checkpoint-4", KINDS["full"] | {"optimizer.pt": harmful})
    assert why_not(folder) == "" and not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_states_that_were_removed_to_save_room_are_missed(name, tmp_path):
    """transformers would go on with a new optimizer, and say nothing."""
    folder = write(tmp_path / "checkpoint-4", KINDS["full"])
    (folder / name).unlink()
    assert "missing" in why_not(folder)
    (folder / "args.json").unlink()  # not known
    assert why_not(folder) == ""
