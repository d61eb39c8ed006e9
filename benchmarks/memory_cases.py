"""The planner against published runs that fitted and that ran out of memory.

    python benchmarks/memory_cases.py FILE.jsonl [--json] [--computed]

A line is one public report: model, cards, flags, and its outcome. It becomes the planner's Settings
by the rules of its framework, all in this file; what a report leaves open is that framework's
default of the time. No rule names a case. Only cases marked score_it are scored. The last line of
--json is {"right": ..., "scored": ...}. Activations are simulated where the closed form is near the
card, so where they can change the verdict.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from swift_vlrft.coordinates import resized_size
from swift_vlrft.memory.estimate import ERROR, Plan, computed, estimate, simulated
from swift_vlrft.memory.models import Model, ModelError, read_model
from swift_vlrft.memory.settings import GIB, USABLE, Settings, card_gib

R1V = ("R1-V", "Visual-RFT", "VLM-R1", "Video-R1", "open-r1-multimodal", "Visual-RFT")
"""Trainers grown out of R1-V's: all of a prompt's generations in one forward pass, logits of the
prompt too, the reference model run while the policy's graph is alive."""

VERL = ("verl", "veRL", "EasyR1", "DeepEyes", "Seg-Zero")

IMAGE = (640, 480)
"""COCO's size, for an image of which nothing is said (the data of these papers)."""

PROMPT_TEXT = 256
"""Text tokens beside the images, where nothing is said."""

COMPLETION = {"r1v": 256, "trl": 256, "verl": 512, "swift": 512, "other": 512}
"""TRL's GRPOConfig, which R1-V's trainers use: 256; ms-swift and verl: 512."""

UTILIZATION = {"r1v": 0.7, "trl": 0.9, "verl": 0.5, "swift": 0.9, "other": 0.9}

NEAR = (0.7, 1.4)
"""Peak over card, in closed form, between which a simulation could change the verdict."""

VARLEN_VIT = "2025-07"
"""From then on transformers' Qwen-VL splits sdpa by image and takes logits_to_keep."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--computed", action="store_true", help="closed form, no simulation")
    parser.add_argument("--case", help="only this id, with its phases")
    arguments = parser.parse_args()
    try:
        rows = [
            json.loads(line) for line in arguments.file.read_text().splitlines() if line.strip()
        ]
    except (OSError, ValueError) as error:
        print(f"{arguments.file}: {error}", file=sys.stderr)
        return 2
    right = scored = 0
    errors = []
    for row in rows:
        if arguments.case and row["id"] != arguments.case:
            continue
        if not row.get("score_it") and not arguments.case:
            continue
        result = judge(row, use_simulation=not arguments.computed)
        scored += 1
        right += result["agrees"]
        if result["published_gib"] and result["peak_gib"]:
            errors.append(result)
        if arguments.json:
            print(json.dumps(result))
        else:
            _print(result, details=bool(arguments.case))
    if arguments.json:
        print(json.dumps({"right": right, "scored": scored}))
    else:
        share = f" ({right / scored:.0%})" if scored else ""
        print(f"\n{right} of {scored} verdicts agree{share}")
        for result in errors:
            print(
                f"published peak {result['published_gib']:.1f} GiB, predicted "
                f"{result['peak_gib']:.1f}: {result['id']} ({result['published_note']})"
            )
    return 0


def judge(row: dict[str, Any], *, use_simulation: bool = True) -> dict[str, Any]:
    result: dict[str, Any] = {"id": row["id"], "published": row["outcome"], "agrees": False}
    peak = row.get("peak_gb_per_gpu")
    # Reports say GB and mean what nvidia-smi prints, GiB.
    result["published_gib"] = peak
    result["published_note"] = row.get("peak_note")
    try:
        settings = settings_of(row)
    except ValueError as error:
        return {**result, "predicted": None, "peak_gib": None, "why": str(error)}
    plan = estimate(settings, computed)
    near = plan.peak.total / settings.gpu_bytes
    if use_simulation and NEAR[0] < near < NEAR[1] and not plan.failures:
        try:
            plan = estimate(settings, simulated)
        except RuntimeError as error:
            result["note"] = f"not simulated: {error}"
    predicted = "fits" if plan.fits else "oom"
    result |= {
        "predicted": predicted,
        "verdict": plan.verdict,
        "agrees": predicted == row["outcome"],
        "peak_gib": round(plan.peak.total / GIB, 1),
        "capacity_gib": round(settings.gpu_bytes / GIB, 1),
        "phase": plan.peak.name,
        "how": plan.how,
        "why": _reason(plan, row),
        "plan": plan.as_dict()["phases"],
    }
    return result


def settings_of(row: dict[str, Any]) -> Settings:
    """A report as Settings, by the rules of its framework."""
    kind = _framework(row["framework"] or "")
    try:
        model = read_model(row["model"] or "")
    except ModelError:
        raise ValueError(f"no configuration of {row['model']}") from None

    def before(date: str) -> bool:
        return (row.get("date") or "2025-01") < date

    old = before(VARLEN_VIT)
    size = float(row["gpu_mem_gb"])
    capacity = _capacity(row.get("gpu_name"), size)
    total = int(row.get("train_gpus") or row.get("gpu_count") or 1)
    sharding = _sharding(row, total, kind)
    tuning = row.get("tuning") or "full"
    rollout = {
        "vllm_colocate": "vllm_colocate",
        "vllm_server": "vllm_server",
        "vllm_dedicated_gpu": "vllm_server",
        "hf_generate": "transformers",
        "none": "none",
    }.get(row.get("rollout_engine") or "", "vllm_colocate" if kind == "verl" else "transformers")
    grids = _grids(row, model, kind)
    batch = int(row.get("seqs_per_forward_per_gpu") or row.get("per_device_train_batch_size") or 1)
    # A logged length, where one is published and no limit, tells more than a default limit.
    logged = re.search(r"completion_length ~(\d+)", row.get("notes") or "")
    default = int(logged[1]) if logged else COMPLETION[kind]
    completion = int(row.get("max_completion_length") or default)
    checkpoints = row.get("gradient_checkpointing")
    if checkpoints is None:
        # On by default in ms-swift, in verl and in TRL since 0.24; off in Hugging Face's own.
        checkpoints = kind in ("swift", "verl") or (kind == "trl" and not before("2025-10"))
    frozen = row.get("freeze_vit")
    if frozen is None:
        frozen = kind == "swift"  # --freeze_vit true
    reference = row.get("ref_model_loaded")
    beta = row.get("beta")
    if reference is None:
        reference = beta != 0
    reference = bool(reference) and tuning == "full" and row.get("algorithm") == "grpo"
    offloads = bool(row.get("offload_model"))
    attention = "sdpa" if kind == "swift" else "flash_attention_2"
    if row.get("attn_impl"):
        attention = "flash_attention_2" if "flash" in row["attn_impl"] else row["attn_impl"]
    fsdp = sharding == "fsdp"
    dtype = row.get("dtype") or ""
    text = PROMPT_TEXT
    max_prompt = row.get("max_prompt_length") or row.get("max_length")
    if not grids:
        text = int(max_prompt or 512)
    return Settings(
        model=model,
        gpu_bytes=round(capacity * GIB),
        processes=total,
        tuning=tuning,
        lora_rank=int(row.get("lora_rank") or 8),
        train_vit=model.sees and not frozen,
        train_aligner=model.sees and not frozen and kind != "swift",
        sharding=sharding,
        cpu_states=bool(row.get("ds_cpu_offload")),
        cpu_parameters=bool(row.get("ds_cpu_offload")) and sharding == "zero3",
        rollout=rollout,  # type: ignore[arg-type]
        rollout_gpus=int(row.get("rollout_gpus") or 0),
        vllm_tp=int(row.get("vllm_tp") or 1),
        vllm_utilization=float(row.get("vllm_gpu_memory_utilization") or UTILIZATION[kind]),
        vllm_max_length=row.get("vllm_max_model_len"),
        # verl's rollout.max_num_batched_tokens; vLLM's server takes as many.
        vllm_batched_tokens=2048 if kind == "swift" else 8192,
        # verl's engine always sleeps while the actor trains.
        sleep_level=1 if kind == "verl" else int(row.get("sleep_level") or 0),
        offload_model=offloads,
        offload_optimizer=bool(row.get("offload_optimizer")),
        move_model_batches=int(row.get("move_model_batches") or 1),
        # ms-swift 3.x gathers all at once for LoRA's merge; in full tuning one by one. R1-V's vLLM
        # trainers gather the whole model.
        sync_by_parameter=(kind in ("verl", "trl")) or (kind == "swift" and tuning == "full"),
        batch=batch,
        accumulation=int(row.get("gradient_accumulation_steps") or 1),
        generations=int(row.get("num_generations") or 8),
        rollout_batch=batch,
        prompt=text,
        completion=completion,
        max_length=int(max_prompt) if max_prompt else None,
        grids=grids,
        checkpoint_llm=bool(checkpoints),
        checkpoint_vit=bool(checkpoints),
        attention=attention,
        dense_vit_attention=bool(grids) and old and attention == "sdpa",
        # verl and EasyR1 keep the reference model in host memory between its passes.
        reference=reference and not (fsdp and offloads),
        reference_in_loss=kind == "r1v" and "prompts" in (row.get("batch_semantics") or ""),
        float32_states=fsdp and "bf16 states" not in dtype,
        optimizer="adamw_foreach" if sharding in ("none", "ddp") and kind == "trl" else "adamw",
        all_logits=kind == "r1v" or (model.sees and old),
    )


def _framework(name: str) -> str:
    if "swift" in name:
        return "swift"
    if any(known.lower() in name.lower() for known in R1V):
        return "r1v"
    if any(known.lower() in name.lower() for known in VERL):
        return "verl"
    return "trl" if "trl" in name.lower() else "other"


def _capacity(name: str | None, size: float) -> float:
    if size < 16:
        return size  # a reading, not a nominal size
    for kind in (f"{name}-{size:g}", name):
        try:
            found = card_gib(kind or "")
        except ValueError:
            continue
        if abs(found - size) < 0.1 * size:
            return found
    return size * USABLE


def _sharding(row: dict[str, Any], processes: int, kind: str) -> Any:
    said = (row.get("parallelism") or "").lower()
    if row.get("zero_stage"):
        return f"zero{row['zero_stage']}"
    if "fsdp" in said or kind == "verl":
        return "fsdp"
    if row.get("move_model_batches"):
        return "zero3"  # it divides ZeRO-3's gathers and does nothing else
    return "ddp" if processes > 1 else "none"


def _grids(row: dict[str, Any], model: Model, kind: str) -> tuple[tuple[int, int, int], ...]:
    """Patches of one row's images: what is said of them, the cap in ms-swift, else COCO's size."""
    note = (row.get("image_note") or "").lower()
    if not model.sees or "text" in note.split():
        return ()
    frames = re.search(r"frames=(\d+)", note)
    per_frame = re.search(r"video_max_pixels=(\d+)", note)
    if frames and per_frame:
        side = max(1, round((int(per_frame[1]) ** 0.5) / 28))
        return ((int(frames[1]) // 2, side * 2, side * 2),)
    tokens = re.search(r"~(\d+)(k?) visual tokens", note)
    if tokens:
        count = int(tokens[1]) * (1000 if tokens[2] else 1)
        return ((1, 2 * max(1, count // 32), 64),)
    cap = row.get("max_pixels")
    count = int(found[1]) if (found := re.search(r"(\d+) images? per prompt", note)) else 1
    if found := re.search(r"image=(\d+)", note):
        count = int(found[1])
    width, height = IMAGE
    if kind == "swift" and cap:
        # The longest row: an image at the cap.
        width = height = int(int(cap) ** 0.5)
    if model.type in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v"):
        width, height = resized_size(model.type, width, height, max_pixels=cap)
        size = model.patch
        return ((1, height // size, width // size),) * count
    side = 32  # 448 / 14: the tile of InternVL and others of its kind
    return ((1, side, side),) * count


def _reason(plan: Plan, row: dict[str, Any]) -> str:
    if plan.failures:
        return plan.failures[0]
    parts = sorted(plan.peak.parts.items(), key=lambda item: -item[1])[:3]
    largest = ", ".join(f"{name} {value / GIB:.1f}" for name, value in parts)
    return f"{plan.peak.name}: {largest}; published cause: {row.get('root_cause_class') or '-'}"


def _print(result: dict[str, Any], *, details: bool) -> None:
    mark = "ok  " if result["agrees"] else "MISS"
    if result["predicted"] is None:
        print(f"{mark} {result['id']:32} {result['published']:5} not planned: {result['why']}")
        return
    tight = abs(result["peak_gib"] / result["capacity_gib"] - 1) < ERROR
    print(
        f"{mark} {result['id']:32} published {result['published']:5} predicted "
        f"{result['predicted']:5}{' (tight)' if tight else ''} "
        f"{result['peak_gib']:.1f} of {result['capacity_gib']:.1f} GiB, {result['phase']}"
    )
    if not result["agrees"]:
        print(f"       {result['why']}")
    if details:
        for name, parts in result["plan"].items():
            print(f"  {name:32} {parts}")


if __name__ == "__main__":
    raise SystemExit(main())
