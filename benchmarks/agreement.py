"""What VLRFT_AGREEMENT=1 costs: seconds in its callback beside those of the steps, in one run.

    python benchmarks/agreement.py      # a tiny Qwen2.5-VL on the CPU with vLLM; 1 minute
    python benchmarks/agreement.py --completion 256 --model MODEL

Figures are logged after every step; the first step is left out. The work goes with the tokens and
not with the model: with a larger one the share is smaller.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.tasks import known_task
from swift_vlrft.tiny.checkpoint import write_tiny

PLUGIN = Path(__file__).resolve().parents[1] / "plugins" / "vlrft.py"
CPU = {
    "USE_HF": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
}


def watch() -> None:
    """In the training process, as its second plugin: time each step and the callback in it."""
    from swift_vlrft.swift_plugin.agreement.cpu import prepare_cpu
    from swift_vlrft.swift_plugin.watch_agreement import WatchAgreement

    prepare_cpu(())
    log, began = WatchAgreement.on_step_end, time.perf_counter()

    def on_step_begin(*_: Any, **__: Any) -> None:
        nonlocal began
        began = time.perf_counter()

    def on_step_end(self: Any, *args: Any, **kwargs: Any) -> None:
        start = time.perf_counter()
        log(self, *args, **kwargs)
        end = time.perf_counter()
        print(f"\nTIMED {end - start:.6f} {end - began:.6f}", flush=True)

    WatchAgreement.on_step_begin = on_step_begin  # type: ignore[method-assign]
    WatchAgreement.on_step_end = on_step_end  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="default: a tiny one of random weights")
    parser.add_argument("--completion", type=int, default=64, help="tokens, at most")
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder, "data"), given.model or str(Path(folder, "model"))
        write_parquet(known_task("colours").make(random.Random(0), 16), data)
        if given.model is None:
            write_tiny("qwen2_5_vl", Path(model))
        command = [
            *("swift", "rlhf", "--rlhf_type", "grpo", "--model", model, "--dataset", str(data)),
            *("--external_plugins", str(PLUGIN), str(Path(__file__).resolve())),
            *("--reward_funcs", "vlrft_format", "--torch_dtype", "float32", "--use_cpu", "true"),
            *("--use_vllm", "true", "--vllm_mode", "colocate", "--vllm_enforce_eager", "true"),
            *("--vllm_max_model_len", "1024", "--tuner_type", "full", "--beta", "0"),
            *("--per_device_train_batch_size", "8", "--num_generations", "8"),
            *("--max_completion_length", str(given.completion), "--max_steps", str(given.steps)),
            *("--logging_steps", "1", "--save_strategy", "no", "--report_to", "none"),
            *("--output_dir", str(Path(folder, "out"))),
        ]
        environment = CPU | os.environ | {"VLRFT_AGREEMENT": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("TIMED ")]
    if not lines[1:]:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    callback, step = (sum(map(float, side)) / len(side) for side in zip(*lines[1:], strict=True))
    print(
        f"callback {callback * 1000:.1f} ms, step {step * 1000:.0f} ms: {callback / step:.2%} "
        f"(means of {len(lines) - 1} steps of 8 completions of at most {given.completion} tokens)"
    )


if __name__ == "__main__":
    main()
else:
    watch()
