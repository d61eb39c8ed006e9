"""`vlrft agree` with real vLLM on tiny models: what is healthy agrees, and no fault does."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from end_to_end.rollout_server import rollout_server
from support.nightly import first_now
from support.own import free_port
from support.swift_run import (
    COLOCATED,
    DEEPSPEED_ON_CPU,
    REPOSITORY,
    SUPPORT,
    TRAINER_PATH,
    VLLM_ON_CPU,
    VLRFT,
    grpo_command,
    run_command,
    run_python,
)
from support.written_sets import write_rows

from swift_vlrft.tiny.checkpoint import write_tiny

pytestmark = pytest.mark.end_to_end

WHEN = ("as loaded", "after the sync")
FLAGS = {
    "full": ("--freeze_vit", "false", "--freeze_aligner", "false"),
    "lora": ("--freeze_vit", "false", "--freeze_aligner", "false", "--tuner_type", "lora"),
    "lora in the engine": ("--tuner_type", "lora", "--vllm_enable_lora", "true"),
}
CODE = "import sys\nfrom end_to_end.agreement_faults import main\nmain(*sys.argv[1:])"


@pytest.fixture(scope="module")
def mixed(rows, tmp_path_factory) -> Path:
    """Rows with images of several sizes, and rows without."""
    folder = tmp_path_factory.mktemp("mixed")
    lines = []
    for i, row in enumerate(rows[:4]):
        row.image.resize((120 + 40 * i, 90 + 10 * i)).save(folder / f"{i}.png")
        asked = {"messages": [{"role": "user", "content": f"<image>{row.problem}"}]}
        lines.append(asked | {"images": [str(folder / f"{i}.png")], "solution": row.solution})
        text = [{"role": "user", "content": f"What is {i} + {i}?"}]
        lines.append({"messages": text, "solution": f"<answer>{2 * i}</answer>"})
    return write_rows(folder / "rows.jsonl", *lines)


PLUGIN, ENGINES = REPOSITORY / "plugins" / "vlrft.py", SUPPORT / "cpu_engines.py"
# What a CPU cannot do.
CPU = (
    *("--use_cpu", "true", "--use_liger_kernel", "false", "--external_plugins", PLUGIN, ENGINES),
    *("--sleep_level", "0", "--vllm_enforce_eager", "true"),
)


def run_agree(*arguments: object, flags: tuple[str, ...] = (), **more: Any) -> CompletedProcess:
    command = [VLRFT, "agree", *arguments, "--", *CPU, *flags]
    return run_command(command, apart=True, **VLLM_ON_CPU | more)


def agree(*arguments: object, code: int, **more: Any) -> dict:
    done = run_agree(*arguments, **more)
    assert done.returncode == code and "{" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout[done.stdout.index("{\n") :])


IN_PROCESS = "--vllm_mode colocate --vllm_max_model_len 512"
ALL_WEIGHTS = f"{IN_PROCESS} --tuner_type full --freeze_vit false --freeze_aligner false"
SERVED = (
    "--vllm_mode server --vllm_server_host 127.0.0.1 --vllm_server_port $PORT "
    f"--vllm_server_group_port $GROUP_PORT --external_plugins {PLUGIN} {ENGINES}"
)


def recipe_of(folder: Path, model: Path, data: Path, more: str, *, before: str = "") -> Path:
    """A script that trains with vLLM; ``before`` stands above the command, ``more`` behind it."""
    path = folder / "recipe.sh"
    path.write_text(
        f"{before}\nswift rlhf --rlhf_type grpo --model {model} --dataset {data} --use_vllm true "
        f"--external_plugins {PLUGIN} --reward_funcs vlrft_format --num_generations 2 "
        f"--max_completion_length 16 --per_device_train_batch_size 2 {more}\n"
    )
    return path


@pytest.mark.nightly
@pytest.mark.parametrize("tuner", FLAGS)
def test_no_fault_agrees(tuner, tiny_qwen2_5_vl, mixed, tmp_path):
    """One engine and one trainer, whose weights and settings are put back after each fault."""
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"result": str(tmp_path / "r.json"), "rows": 2, "tokens": 8}))
    flags = (*COLOCATED, "--dataset_shuffle", "false", "--reward_funcs", "vlrft_format")
    flags += ("--beta", "0", *FLAGS[tuner])
    command = grpo_command(tiny_qwen2_5_vl, mixed, tmp_path / "out", *flags)
    done = run_python(CODE, str(job), tuner, *command[2:], **VLLM_ON_CPU)
    assert "ALL AS EXPECTED" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("family", first_now("qwen3_vl", "qwen3_5", "internvl"))
def test_a_model_with_a_set(family, mixed, tmp_path):
    write_tiny(family, tmp_path / family)
    recipe = recipe_of(tmp_path, tmp_path / family, mixed, ALL_WEIGHTS)
    out = tmp_path / "out"
    found = agree(
        *(recipe, "--out", out, "--json", "--rows", "4", "--tokens", "16"),
        flags=("--torch_dtype", "bfloat16"),
        code=0,
    )
    assert (found["word"], found["first"], found["dtype"]) == ("agrees", None, "bfloat16")
    compared = {f"{when}, {kind} rows": 32 for when in WHEN for kind in ("image", "text")}
    assert {name: f["tokens"] for name, f in found["figures"].items()} == compared
    assert {file.name for file in out.iterdir()} >= {"verdict.json", "measured.json", "swift.log"}


@pytest.mark.nightly
def test_a_recipe_as_it_stands(shapes, tmp_path):
    """ZeRO-3, both offloads, vLLM over two processes; sleep mode and CUDA graphs are left out."""
    write_tiny("qwen2_vl", tmp_path / "model")
    found = agree(
        *(REPOSITORY / "recipes" / "qwen2_vl_2b" / "classification_4x24g.sh", "--json"),
        *("--rows", "4", "--tokens", "8", "--out", tmp_path / "out"),
        flags=(
            *("--vllm_tensor_parallel_size", "2", "--vllm_max_model_len", "1024"),
            *("--ddp_backend", "gloo", "--attn_impl", "sdpa"),
        ),
        code=0,
        **DEEPSPEED_ON_CPU,
        MODEL=str(tmp_path / "model"),
        DATASET=str(shapes),
        OUTPUT_DIR=str(tmp_path / "untouched"),
        NPROC_PER_NODE="2",
    )
    assert found["word"] == "agrees" and found["engine"] == "vLLM colocate"
    assert not (tmp_path / "untouched").exists()


@pytest.mark.nightly
def test_a_server_that_sees_smaller_images(tiny_qwen2_5_vl, mixed, tmp_path, monkeypatch):
    """Weights go over a TCP store, not NCCL."""
    recipe = recipe_of(
        *(tmp_path, tiny_qwen2_5_vl, mixed, f"{SERVED} --tuner_type full"),
        before="export NPROC_PER_NODE=2 MAX_PIXELS=401408",
    )
    port = free_port()
    monkeypatch.setenv("MAX_PIXELS", "3136")
    with rollout_server(tiny_qwen2_5_vl, port, tmp_path / "rollout.log"):
        found = agree(
            *(recipe, "--rows", "4", "--tokens", "8", "--out", tmp_path / "out", "--json"),
            code=1,
            plain=True,
            PYTHONPATH=TRAINER_PATH,
            PORT=port,
            GROUP_PORT=free_port(),  # else 51216, whichever test runs beside this one
            VLRFT_TEST_SERVER="1",
        )
    assert found["engine"] == "vLLM server"
    assert found["word"] == "prompt" and "<|image_pad|>" in found["first"]["trainer"]


@pytest.mark.nightly
def test_an_engine_that_does_not_start_is_not_compared(tiny_qwen2_5_vl, mixed, tmp_path):
    """It asks for 9,000 GiB."""
    recipe = recipe_of(tmp_path, tiny_qwen2_5_vl, mixed, ALL_WEIGHTS)
    done = run_agree(recipe, "--out", tmp_path / "out", VLLM_CPU_KVCACHE_SPACE="9000")
    assert done.returncode == 2 and not done.stdout
    (line,) = done.stderr.strip().splitlines()
    assert "nothing was compared: Available memory" in line
    assert str(tmp_path / "out" / "swift.log") in line
