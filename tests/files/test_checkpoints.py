"""Which checkpoints are complete: of every kind that ms-swift writes, whole, cut off and with a
file missing.
"""

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from swift_vlrft.files.checkpoints import good_checkpoints, why_not


def tensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(256)


def saved() -> bytes:
    """As torch.save writes it: a zip file that is not compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}." * 20)
        archive.writestr("archive/data/0", bytes(100))
    return file.getvalue()


def state(**more: object) -> bytes:
    return json.dumps({"global_step": 4, "log_history": [{"loss": 0.1}]} | more, indent=2).encode()


def files(*, ranks: int = 1, weights: str = "model", engine: str = "", **args: object) -> dict:
    """Name to content, as the run of ms-swift 4.6.0 that the test's name says leaves them."""
    config = "adapter_config.json" if weights == "adapter_model" else "config.json"
    found = {f"{weights}.safetensors": tensors(), config: b"{}"}
    if weights == "shards":
        del found["shards.safetensors"]
        shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
        found |= dict.fromkeys(shards, tensors())
        index = {"weight_map": dict(zip("ab", shards, strict=True))}
        found["model.safetensors.index.json"] = json.dumps(index).encode()
    if weights == "none":
        del found["none.safetensors"]
    found["training_args.bin"] = saved()
    if not args.get("save_only_model"):
        names = [f"rng_state_{n}.pth" for n in range(ranks)] if ranks > 1 else ["rng_state.pth"]
        found |= dict.fromkeys(names, saved())
        if engine:
            of_model = (
                ["mp_rank_00"]
                if engine == "zero2"
                else [f"zero_pp_rank_{n}_mp_rank_00" for n in range(ranks)]
            )
            found |= {f"global_step4/{name}_model_states.pt": saved() for name in of_model}
            found |= {
                f"global_step4/bf16_zero_pp_rank_{n}_mp_rank_00_optim_states.pt": saved()
                for n in range(ranks)
            }
            found["latest"] = b"global_step4"
        else:
            found |= dict.fromkeys(["optimizer.pt", "scheduler.pt"], saved())
    found["trainer_state.json"] = state()
    sizes = {"global_world_size": ranks, "local_world_size": ranks}
    found["args.json"] = state(**sizes, **{"save_only_model": False} | args)
    return found


def fsdp(*names: str) -> dict:
    """As accelerate saves it (fsdp_utils.py)."""
    found = files(ranks=2, weights="none")
    del found["optimizer.pt"]
    last = {name: found.pop(name) for name in ("trainer_state.json", "args.json")}
    return found | dict.fromkeys(names, saved()) | last


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


@pytest.fixture(params=KINDS)
def checkpoint(request, tmp_path):
    return write(tmp_path / "checkpoint-4", KINDS[request.param])


def test_a_whole_one_is_complete(checkpoint):
    assert why_not(checkpoint) == ""
    assert good_checkpoints(checkpoint.parent) == [checkpoint]


def test_every_file_that_is_cut_off_is_named(checkpoint):
    for file in [f for f in checkpoint.rglob("*") if f.is_file()]:
        if file.parent.name in ("pytorch_model_fsdp_0", "optimizer_0"):
            continue  # a pickle says how long they are, and none is read
        whole = file.read_bytes()
        for length in {0, 1, min(7, len(whole) // 2), len(whole) // 2, len(whole) - 1}:
            file.write_bytes(whole[:length])
            assert file.name in why_not(checkpoint), (file, length)
        file.write_bytes(whole)


def test_every_missing_file_is_noticed(checkpoint):
    # What going on can do without: the arguments are given again.
    for file in [f for f in checkpoint.rglob("*") if f.is_file()]:
        if file.name in ("args.json", "training_args.bin"):
            continue
        whole = file.read_bytes()
        file.unlink()
        assert why_not(checkpoint), file.name
        file.write_bytes(whole)


def test_in_the_order_of_writing_it_is_complete_with_the_last_file_only(checkpoint):
    content = {f: f.read_bytes() for f in checkpoint.rglob("*") if f.is_file()}
    state = checkpoint / "trainer_state.json"
    for file in content:
        file.unlink()
    for file in [*(f for f in content if f != state), state]:
        assert why_not(checkpoint)
        file.write_bytes(content[file])
    assert why_not(checkpoint) == ""


@pytest.mark.parametrize(
    ("kind", "name", "new", "why"),
    [
        ("full", "optimizer.pt", bytes(4096), "optimizer.pt is no file of torch.save"),
        ("full", "model.safetensors", bytes(4096), "model.safetensors is no complete"),
        ("full", "trainer_state.json", b"[]", "trainer_state.json holds no JSON object"),
        ("full", "trainer_state.json", b"\0" * 99, "trainer_state.json is no complete JSON"),
        ("shards", "model.safetensors.index.json", b"{}", "every shard"),
        ("shards", "model.safetensors.index.json", b'{"weight_map": 3}', "every shard"),
        ("zero3", "latest", b"global_step2", "'latest'"),
        ("zero3", "latest", b"\xff\xfe", "'latest'"),
        ("full", "args.json", state(global_world_size=4), "random states of 3 of 4 ranks"),
        ("zero2, lora", "args.json", state(global_world_size=4), "2 of 4 ranks"),
        # Every node has a disk of its own, and saves there what is its own.
        (
            *("zero2, lora", "args.json"),
            *(state(global_world_size=4, local_world_size=2, save_on_each_node=True), ""),
        ),
        ("full", "args.json", state(global_world_size="many"), ""),
    ],
)
def test_other_damage(kind, name, new, why, tmp_path):
    folder = write(tmp_path / "checkpoint-4", KINDS[kind])
    (folder / name).write_bytes(new)
    assert why in why_not(folder) and bool(why) == bool(why_not(folder))


def test_good_checkpoints_are_in_the_order_of_their_steps(tmp_path):
    for step in (4, 10, 2):
        write(tmp_path / f"checkpoint-{step}", KINDS["lora"])
    write(tmp_path / "checkpoint-12", {"adapter_model.safetensors": tensors()})
    (tmp_path / "checkpoint-14").mkdir()
    (tmp_path / "checkpoint-16").write_text("a file")
    (tmp_path / "last-checkpoint").symlink_to("checkpoint-10")
    write(tmp_path / "checkpoint-18-merged", KINDS["lora"])
    names = [folder.name for folder in good_checkpoints(tmp_path)]
    assert names == ["checkpoint-2", "checkpoint-4", "checkpoint-10"]
    assert "written last" in why_not(tmp_path / "checkpoint-12")


def test_nothing_is_unpickled(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harmed"),)

    import pickle

    folder = write(tmp_path / "checkpoint-4", KINDS["full"])
    (folder / "optimizer.pt").write_bytes(pickle.dumps(Harm()))
    assert why_not(folder) == ""
    assert not (tmp_path / "harmed").exists()


def test_states_that_were_removed_to_save_room_are_missed(tmp_path):
    """transformers would go on with a new optimizer, and say nothing."""
    folder = write(tmp_path / "checkpoint-4", KINDS["full"])
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).unlink()
    assert "optimizer and random states, which its run saved, were removed" in why_not(folder)
    (folder / "args.json").unlink()  # not known
    assert why_not(folder) == ""
