"""A way to run a recipe's own file with bash on a CPU: only what a CPU cannot do is overridden."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.own import free_port
from support.swift_run import (
    DEEPSPEED_ON_CPU,
    REPOSITORY,
    SUPPORT,
    TRAINER_PATH,
    VLLM_ON_CPU,
    Run,
    run_swift,
)

from swift_vlrft.recipe.reader import Recipe, only, read_recipes

RECIPES = REPOSITORY / "recipes"

# The engines' CPU forms. Sleep mode, NCCL and CUDA graphs are CUDA's.
CPU = ("--use_cpu", "true", "--ddp_backend", "gloo")
# A data worker is a fork of a process in which vLLM's threads run, and may hang.
CPU_VLLM = (
    *("--sleep_level", "0", "--vllm_enforce_eager", "true", "--dataloader_num_workers", "0"),
)
# Steps and answers of a length that two cores finish in seconds.
SHORT = (
    *("--add_version", "false", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--lr_scheduler_type", "constant"),  # two steps must be seen
)


def read(path: Path, **variables: str) -> Recipe:
    """The recipe as its file stands."""
    needed = {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    return only(read_recipes(path, needed | variables))


def cpu_flags(recipe: Recipe, processes: int) -> list[str]:
    flags = [*CPU, *SHORT]
    if recipe.command[-1] == "sft":
        evaluated = ("--eval_steps", "2", "--dataloader_num_workers", "0")
        return [*flags, "--max_new_tokens", "8", *evaluated]
    flags += ["--max_completion_length", "8"]
    if recipe.get("vllm_mode") == "colocate":
        tensor_parallel = min(int(recipe.get("vllm_tensor_parallel_size") or 1), processes)
        flags += [*CPU_VLLM, "--vllm_tensor_parallel_size", str(tensor_parallel)]
    # A random model earns nothing: the coin gives every step a gradient.
    flags += ["--reward_funcs", *recipe.values("reward_funcs"), "coin"]
    plugins = [REPOSITORY / "plugins" / "vlrft.py", SUPPORT / "cpu_engines.py"]
    return [*flags, "--external_plugins", *map(str, plugins)]


def environment(recipe: Recipe, **variables: str | Path) -> dict[str, str]:
    cpu = DEEPSPEED_ON_CPU if recipe.get("deepspeed") else {}
    if recipe.get("use_vllm") == "true":
        cpu = cpu | VLLM_ON_CPU
    return cpu | {name: str(value) for name, value in variables.items()}


def run_recipe(
    path: Path,
    model: Path,
    dataset: str,
    output: Path,
    *flags: str,
    plain: bool = False,
    **variables: str,
) -> Run:
    """``bash RECIPE FLAGS`` on two processes, to the end."""
    recipe, variables = read(path), {"NPROC_PER_NODE": "2"} | variables
    variables |= environment(recipe, MODEL=model, DATASET=dataset, OUTPUT_DIR=output)
    command = ["bash", str(path), *cpu_flags(recipe, 2), *flags]
    return run_swift(command, output, plain=plain, **variables)


def run_on_two_nodes(path: Path, model: Path, dataset: str, output: Path, *flags: str) -> Run:
    """The recipe twice at the same time, as two nodes of one process each on the loopback."""
    shared = {"NPROC_PER_NODE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}

    def run(rank: str) -> Run:
        return run_recipe(path, model, dataset, output, *flags, NODE_RANK=rank, **shared)

    with ThreadPoolExecutor() as pool:
        return list(pool.map(run, "01"))[0]


def run_with_server(path: Path, model: Path, dataset: str, output: Path, *flags: str) -> Run:
    """The server recipe with one engine, which shares the machine with the two trainers."""
    rollout = (
        "--vllm_data_parallel_size 1 --vllm_enforce_eager true --vllm_max_model_len 1024 "
        f"--external_plugins {REPOSITORY / 'plugins' / 'vlrft.py'} {SUPPORT / 'cpu_engines.py'}"
    )
    return run_recipe(
        *(path, model, dataset, output, *flags, "--vllm_server_group_port", free_port()),
        ROLLOUT_PORT=free_port(),
        ROLLOUT_FLAGS=rollout,
        VLRFT_TEST_SERVER="1",
        PYTHONPATH=TRAINER_PATH,
        plain=True,
        VLLM_ENABLE_V1_MULTIPROCESSING="0",  # the engine in the process that has the plugin
    )
