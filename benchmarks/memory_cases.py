"""The planner against published runs: those that fitted or not, and those that say how much.

    python benchmarks/memory_cases.py [benchmarks/cases/memory_cases.jsonl] [--json] [--case ID]

A line of the file is one public report: model, GPUs, flags, and its outcome. It becomes the
planner's Settings by the rules of its framework, all in this file; what a report leaves open is
that framework's default of the time. No rule names a case. Only cases marked score_it are scored.

A line of memory_records.jsonl is a run with its size on a GPU, as flags of ms-swift, and is planned
as a recipe of them; ``note`` says what the report leaves open. Of these, planned over published is
printed by source. A line of memory_own.jsonl is a run of ours on a GPU, with the size of its
phases. The last line of --json has all counts of published runs.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from swift_vlrft.memory import from_recipe
from swift_vlrft.memory.estimate import ERROR, Plan, estimate
from swift_vlrft.memory.models import Model, known_models, read_model
from swift_vlrft.memory.settings import CAPACITY, GIB, USABLE, Settings, parse_gpus
from swift_vlrft.memory.vllm import largest_image
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.run import resolve

R1V = ("R1-V", "Visual-RFT", "VLM-R1", "Video-R1", "open-r1-multimodal")
"""Trainers grown out of R1-V's: all of a prompt's generations in one forward pass, logits of the
prompt too."""

CARDS = (24, 40, 48, 80, 96, 141)
"""Sizes in GB: a run of which only its use is known fits on the smallest that holds it."""

VERL = ("verl", "veRL", "EasyR1", "DeepEyes", "Seg-Zero")

FILE = Path(__file__).with_name("cases") / "memory_cases.jsonl"
RECORDS, OWN = FILE.with_name("memory_records.jsonl"), FILE.with_name("memory_own.jsonl")

FITTED = "ms-swift examples"
"""The source whose sizes the planner's share of fragmentation was chosen on (memory/phases.py)."""

IMAGE = (640, 480)
"""COCO's size, for an image of which nothing is said (the data of these papers)."""

PROMPT_TEXT = 256
"""Text tokens beside the images, where nothing is said."""

COMPLETION = {"r1v": 256, "trl": 256, "verl": 512, "swift": 512, "other": 512}
"""TRL's GRPOConfig, which R1-V's trainers use: 256; ms-swift and verl: 512."""

UTILIZATION = {"r1v": 0.7, "trl": 0.9, "verl": 0.5, "swift": 0.9, "other": 0.9}

VARLEN_VIT = "2025-07"
"""From then on transformers' Qwen-VL splits sdpa by image and takes logits_to_keep."""

DENSE_VIT = ("qwen2_vl", "qwen2_5_vl")
"""Model types whose ViT took all patches of a batch as one sequence under sdpa before that. Others,
as InternVL's, give each image or tile a row of its own."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", help="only this id, with its phases")
    arguments = parser.parse_args()
    try:
        rows = list(read_cases(arguments.file))
    except (OSError, UnicodeError) as error:
        print(f"{arguments.file}: {error}", file=sys.stderr)
        return 2
    right = scored = 0
    errors = []
    for row in rows:
        if arguments.case and row["id"] != arguments.case:
            continue
        if not row.get("score_it") and not arguments.case:
            continue
        result = judge(row)
        scored += 1
        right += result["agrees"]
        if result["published_gib"] and result["peak_gib"]:
            errors.append(result)
        if arguments.json:
            print(json.dumps(result))
        else:
            _print(result, details=bool(arguments.case))
    records = [] if arguments.case else list(map(measured, read_records()))
    own = [] if arguments.case else [row for run in read_records(OWN) for row in by_phase(run)]
    others = [record for record in records if record["source"] != FITTED]
    if arguments.json:
        counted: dict[str, float] = {"right": right, "scored": scored, "records": len(records)}
        if records:
            counted |= {"error": error_of(records), "others": len(others)}
            counted["error_of_others"] = error_of(others)
        for line in (*own, *records, counted):
            print(json.dumps(line))
    else:
        print_records(records, others)
        for row in own:
            off = row["planned_gib"] / row["measured_gib"] - 1
            print(f"{row['run']}, {row['phase']}: {row['planned_gib']:.2f} GiB planned, ", end="")
            print(f"{row['measured_gib']:.2f} measured, {off:+.1%}")
        share = f" ({right / scored:.0%})" if scored else ""
        print(f"\n{right} of {scored} verdicts agree{share}")
        for result in errors:
            print(
                f"published peak {result['published_gib']:.1f} GiB, predicted "
                f"{result['peak_gib']:.1f}: {result['id']} ({result['published_note']})"
            )
    return 0


def read_records(file: Path = RECORDS) -> Iterator[dict[str, Any]]:
    return map(json.loads, file.read_text().splitlines())


def by_phase(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The phases of a run of ours, planned and measured, before the optimizer's first step, which
    makes the moments, and after it."""
    after = settings_of_flags(record)
    before = replace(after, optimizer="sgd")
    for times, settings in (("before_a_step", before), ("after", after)):
        totals = {phase.name: phase.total / GIB for phase in estimate(settings).phases}
        for phase, size in record[times].items():
            sizes = {"planned_gib": round(totals[phase], 2), "measured_gib": size}
            yield {"run": record["id"], "phase": phase, **sizes}


def settings_of_flags(record: dict[str, Any]) -> Settings:
    flags = {"dataset": "data", **record["flags"]}
    words = [f"{name}={shlex.quote(str(value))}" for name, value in record["env"].items()]
    words += ["swift", record["command"]]
    words += [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    (recipe,) = read_text(" ".join(words), record["id"], {})
    return from_recipe.settings_of(resolve(recipe), parse_gpus(record["gpus"]))


def measured(record: dict[str, Any]) -> dict[str, Any]:
    """A run whose size is published, with its plan; torch's own where only that was measured."""
    plan = estimate(settings_of_flags(record))
    phase = next((p for p in plan.phases if p.name == record.get("phase")), plan.peak)
    sizes = {"reserved": phase.total / GIB, "allocated": phase.allocated / GIB}
    kind = "reserved" if "reserved_gib" in record else "allocated"
    published = record[f"{kind}_gib"]
    return {
        **{"id": record["id"], "source": record["source"], "kind": kind, "phase": phase.name},
        **{"published_gib": published, "planned_gib": round(sizes[kind], 2)},
        **{"ratio": sizes[kind] / published, "fits": plan.fits},
    }


def error_of(records: list[dict[str, Any]]) -> float:
    """The median of how far plans are from what was published."""
    return round(float(statistics.median(abs(record["ratio"] - 1) for record in records)), 2)


def print_records(records: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    by_source = defaultdict(list)
    for record in records:
        by_source[record["source"]].append(record)
        print(
            f"{record['ratio']:.2f} {record['id']:32} {record['planned_gib']:.1f} of "
            f"{record['published_gib']:.1f} GiB {record['kind']}, {record['phase']}"
        )
    groups = {**by_source, "all": records, f"all but {FITTED}": others} if records else {}
    for source, some in groups.items():
        ratios, fits = [record["ratio"] for record in some], sum(r["fits"] for r in some)
        error = error_of(some)
        print(
            f"{source}: {len(some)} runs, planned/published {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), error {error:.0%}, {fits} fit as they did"
        )


def read_cases(file: Path) -> Iterator[dict[str, Any]]:
    """The lines that are cases; what is wrong with another is said and it is left out."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            print(f"{file}:{number}: not JSON: {error}", file=sys.stderr)
            continue
        if not isinstance(row, dict):
            print(f"{file}:{number}: not an object", file=sys.stderr)
            continue
        yield {**row, "id": text(row, "id") or f"line {number}", "outcome": text(row, "outcome")}


def judge(row: dict[str, Any]) -> dict[str, Any]:
    """A case with its verdict; one that cannot be planned is a miss that says why."""
    try:
        return _judge(row)
    except Exception as error:  # a report is not ours: whatever it holds, the others are judged
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return _result(row) | {"predicted": None, "peak_gib": None, "why": why}


def _result(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "published": row["outcome"],
        "agrees": False,
        # Reports say GB and mean what nvidia-smi prints, GiB.
        "published_gib": number(row, "peak_gb_per_gpu"),
        "published_note": text(row, "peak_note"),
    }


def _judge(row: dict[str, Any]) -> dict[str, Any]:
    result = _result(row)
    settings = settings_of(row)
    plan = estimate(settings)
    predicted = "fits" if plan.fits else "oom"
    result |= {
        "predicted": predicted,
        "verdict": plan.verdict,
        "agrees": predicted == row["outcome"],
        "peak_gib": round(plan.peak.total / GIB, 1),
        "capacity_gib": round(settings.gpu_bytes / GIB, 1),
        "phase": plan.peak.name,
        "why": _reason(plan, row),
        "plan": plan.as_dict()["phases"],
    }
    return result


# What a report holds ---------------------------------------------------------------------------


def number(row: dict[str, Any], key: str) -> float | None:
    """A number, also out of "80GB" or "~0.9"; None where there is none."""
    value = row.get(key)
    if isinstance(value, str):
        found = re.search(r"\d+(?:\.\d+)?", value.replace(",", ""))
        return float(found[0]) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def count(row: dict[str, Any], key: str) -> int | None:
    value = number(row, key)
    return None if value is None else int(value)


def flag(row: dict[str, Any], key: str) -> bool | None:
    value = row.get(key)
    if isinstance(value, str):
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(
            value.strip().lower()
        )
    return None if value is None or isinstance(value, list | dict) else bool(value)


def text(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return "" if value is None or isinstance(value, dict | bool) else str(value)


def _model(row: dict[str, Any]) -> Model:
    """By its name; one whose configuration is not shipped is planned by the size in its name."""
    name = text(row, "model")
    if not name:
        raise ValueError("the report names no model")
    try:
        return read_model(name)
    except ValueError:
        # Not from this repository's files: a report's name is never taken for a path elsewhere.
        sees = text(row, "modality") not in ("llm", "text", "")
        return model_of_size(name, sees=sees)


def model_of_size(name: str, *, sees: bool) -> Model:
    """A model that is not shipped, by the size in its name: the shipped one of its kind nearest in
    size, with as many layers as make that size; nothing better is known of it.

        model_of_size("meta-llama/Llama-3.2-3B", sees=False)     Qwen2.5-3B of 37 layers

    For published reports, which name models of every kind; `vlrft plan` asks for the configuration.
    """
    plain = name.rstrip("/").rsplit("/", 1)[-1]
    size = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)\s*b(?![a-z])", plain.lower().replace("_", "-"))
    if not size or not 0.1 <= float(size[1]) <= 1000:
        raise ValueError(f"no configuration of {name} is shipped, and its name has no size")
    total = float(size[1]) * 1e9
    active = bool(re.search(r"-a\d+(?:\.\d+)?b", plain.lower()))
    models = map(read_model, known_models())
    kind = [m for m in models if m.sees == sees and bool(m.experts) == active]
    nearest = min(kind, key=lambda m: abs(math.log(m.parameters.total / total)))
    parameters = nearest.parameters
    # Sizes in names count the whole model; the ViT and the embedding do not change.
    rest = parameters.total - nearest.layers * parameters.largest_layer
    layers = max(1, round((total - rest) / parameters.largest_layer))
    more = layers - nearest.layers
    text = {**nearest.text, "num_hidden_layers": layers}
    text.pop("layer_types", None)
    config = {**nearest.config, "text_config": text} if nearest.sees else text
    counts = replace(parameters, layers=parameters.layers + more * parameters.largest_layer)
    return Model(plain, config, counts)


def settings_of(row: dict[str, Any]) -> Settings:
    """A report as Settings, by the rules of its framework."""
    kind = _framework(text(row, "framework"))
    model = _model(row)

    def before(date: str) -> bool:
        return (text(row, "date") or "2025-01") < date

    old = before(VARLEN_VIT)
    used = number(row, "peak_gb_per_gpu") if text(row, "outcome") == "fits" else None
    capacity = _capacity(text(row, "gpu_name"), number(row, "gpu_mem_gb"), used)
    total = count(row, "train_gpus") or count(row, "gpu_count") or 1
    sharding = _sharding(row, total, kind)
    tuning: Any = text(row, "tuning") or "full"
    if tuning not in ("full", "lora", "qlora"):
        tuning = "lora" if "lora" in tuning.lower() else "full"
    rollout = {
        "vllm_colocate": "vllm_colocate",
        "vllm_server": "vllm_server",
        "vllm_dedicated_gpu": "vllm_server",
        "hf_generate": "transformers",
        "none": "none",
    }.get(text(row, "rollout_engine"), "vllm_colocate" if kind == "verl" else "transformers")
    grids = _grids(row, model, kind)
    batch = count(row, "seqs_per_forward_per_gpu") or count(row, "per_device_train_batch_size") or 1
    # A logged length, where one is published and no limit, tells more than a default limit.
    logged = re.search(r"completion_length ~(\d+)", text(row, "notes"))
    default = int(logged[1]) if logged else COMPLETION[kind]
    completion = count(row, "max_completion_length") or default
    checkpoints = flag(row, "gradient_checkpointing")
    if checkpoints is None:
        # On by default in ms-swift, in verl and in TRL since 0.24; off in Hugging Face's own.
        checkpoints = kind in ("swift", "verl") or (kind == "trl" and not before("2025-10"))
    frozen = flag(row, "freeze_vit")
    if frozen is None:
        frozen = kind == "swift"  # --freeze_vit true
    reference = flag(row, "ref_model_loaded")
    beta = number(row, "beta")
    if reference is None:
        reference = beta != 0
    reference = bool(reference) and tuning == "full" and "grpo" in text(row, "algorithm")
    offloads = bool(flag(row, "offload_model"))
    attention = "sdpa" if kind == "swift" else "flash_attention_2"
    if said := text(row, "attn_impl"):
        # Whatever is neither flash nor eager has torch's kernels, which keep as much as flash.
        attention = "flash_attention_2" if "flash" in said else "sdpa"
        attention = "eager" if "eager" in said else attention
    fsdp, swift = sharding == "fsdp", kind == "swift"
    by_parameter = kind in ("verl", "trl") or (swift and tuning == "full")
    words = PROMPT_TEXT
    max_prompt = count(row, "max_prompt_length") or count(row, "max_length")
    if not grids:
        words = max_prompt or 512
    return Settings(
        model=model,
        gpu_bytes=round(capacity * GIB),
        processes=total,
        tuning=tuning,
        lora_rank=count(row, "lora_rank") or 8,
        train_vit=model.sees and not frozen,
        train_aligner=model.sees and not frozen and kind != "swift",
        sharding=sharding,
        cpu_states=bool(flag(row, "ds_cpu_offload")),
        cpu_parameters=bool(flag(row, "ds_cpu_offload")) and sharding == "zero3",
        rollout=rollout,  # type: ignore[arg-type]
        vllm_tp=count(row, "vllm_tp") or 1,
        vllm_utilization=number(row, "vllm_gpu_memory_utilization") or UTILIZATION[kind],
        # Without the flag ms-swift's engine takes the model's context, others the rows' length.
        vllm_max_length=count(row, "vllm_max_model_len") or (model.context if swift else None),
        vllm_profiled_patches=largest_image(model) if swift else None,
        # verl's engine always sleeps while the actor trains.
        sleep_level=1 if kind == "verl" else count(row, "sleep_level") or 0,
        offload_model=offloads,
        offload_optimizer=bool(flag(row, "offload_optimizer")),
        # ms-swift 3.x gathers all at once for LoRA's merge; in full tuning one by one. R1-V's vLLM
        # trainers gather the whole model.
        move_model_batches=model.layers if by_parameter else count(row, "move_model_batches") or 1,
        batch=batch,
        accumulation=count(row, "gradient_accumulation_steps") or 1,
        generations=count(row, "num_generations") or 8,
        rollout_batch=batch,
        prompt=words,
        completion=completion,
        max_length=max_prompt,
        grids=grids,
        checkpoint_llm=bool(checkpoints),
        checkpoint_vit=bool(checkpoints),
        attention=attention,
        supervised="sft" in text(row, "algorithm").lower(),
        dense_vit_attention=(
            bool(grids) and old and attention == "sdpa" and model.type in DENSE_VIT
        ),
        # verl and EasyR1 keep the reference model in host memory between its passes.
        reference=reference and not (fsdp and offloads),
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


def _capacity(name: str, size: float | None, used: float | None) -> float:
    if not size:
        if not name and used and used < max(CARDS) * USABLE:
            return next(card * USABLE for card in CARDS if card * USABLE >= used)
        if not name:
            raise ValueError("the report says neither the GPU's size nor its name")
        return CAPACITY[name]
    if size < 16:
        return size  # a reading, not a nominal size
    plain = name.removeprefix("RTX ")
    found = CAPACITY.get(f"{plain}-{size:g}") or CAPACITY.get(plain)
    if found and abs(found - size) < 0.1 * size:
        return found
    return size * USABLE


def _sharding(row: dict[str, Any], processes: int, kind: str) -> Any:
    said = text(row, "parallelism").lower()
    stage = count(row, "zero_stage") or (int(m[1]) if (m := re.search(r"zero-?(\d)", said)) else 0)
    if stage in (1, 2, 3):
        return f"zero{stage}"
    if "fsdp" in said or kind == "verl":
        return "fsdp"
    if count(row, "move_model_batches"):
        return "zero3"  # it divides ZeRO-3's gathers and does nothing else
    return "ddp" if processes > 1 else "none"


def _grids(row: dict[str, Any], model: Model, kind: str) -> tuple[tuple[int, int, int], ...]:
    """Patches of one row's images: what is said of them, the cap in ms-swift, else COCO's size."""
    note = text(row, "image_note").lower()
    if not model.sees or "text" in note.split():
        return ()
    frames = re.search(r"frames=(\d+)", note)
    per_frame = re.search(r"video_max_pixels=(\d+)", note)
    if frames and per_frame:
        side = max(1, round((int(per_frame[1]) ** 0.5) / 28))
        return ((max(1, int(frames[1]) // 2), side * 2, side * 2),)
    tokens = re.search(r"~(\d+)(k?) visual tokens", note)
    if tokens:
        seen = int(tokens[1]) * (1000 if tokens[2] else 1)
        return ((1, 2 * max(1, seen // 32), 64),)
    cap = count(row, "max_pixels")
    images = int(found[1]) if (found := re.search(r"(\d+) images? per prompt", note)) else 1
    if found := re.search(r"image=(\d+)", note):
        images = int(found[1])
    width, height = IMAGE
    if found := re.search(r"(\d{2,4})\s?x\s?(\d{2,4})", note):
        width, height = int(found[1]), int(found[2])
    elif kind == "swift" and cap:
        # The longest row: an image at the cap.
        width = height = max(28, int(cap**0.5))
    if model.knows_images:
        width, height = model.image_rule.within(max_pixels=cap).size(width, height)
        size = model.patch
        return ((1, height // size, width // size),) * images
    side = 32  # 448 / 14: the tile of InternVL and others of its kind
    return ((1, side, side),) * images


def _reason(plan: Plan, row: dict[str, Any]) -> str:
    if plan.failures:
        return plan.failures[0]
    parts = sorted(plan.peak.parts.items(), key=lambda item: -item[1])[:3]
    largest = ", ".join(f"{name} {value / GIB:.1f}" for name, value in parts)
    return f"{plan.peak.name}: {largest}; published cause: {text(row, 'root_cause_class') or '-'}"


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
