"""Answers of a model through ms-swift's engines: vLLM where it is installed, else transformers.

    python -m swift_vlrft.swift_plugin.inference runs/eval 0 2      # worker 0 of 2 of that run

Prompts are built by ms-swift's own templates, as in training. A checkpoint of LoRA is loaded onto
the model that it names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import DataError, open_image
from swift_vlrft.datasets.box_format import ImageResize
from swift_vlrft.datasets.image import ImageInfo, size_problem
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.framing import framed
from swift_vlrft.evaluation.predictions import EvaluationError, Problems, content_key
from swift_vlrft.evaluation.questions import Question, Settings
from swift_vlrft.evaluation.run import answer_line, answered, new_part, pending
from swift_vlrft.swift_plugin.command_line import CommandLine
from swift_vlrft.swift_plugin.model import needed_image_resize

ENGINES = ("auto", "vllm", "transformers")
VLLM_CHUNK = 256
"""Questions handed to vLLM at once: it batches them itself."""


def chosen_engine(name: str) -> str:
    if name not in ENGINES:
        raise EvaluationError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    if name != "auto":
        if name == "vllm" and importlib.util.find_spec("vllm") is None:
            raise EvaluationError("--engine vllm: vllm is not installed (pip install vllm)")
        return name
    import torch

    usable = importlib.util.find_spec("vllm") is not None and torch.cuda.is_available()
    return "vllm" if usable else "transformers"


def model_and_adapter(model: str, base: str | None) -> tuple[str, str | None]:
    """What to load: a checkpoint of LoRA is an adapter of the model that it names."""
    folder = Path(model)
    if not folder.is_dir():
        if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
            raise EvaluationError(f"the checkpoint {model} does not exist (from {Path.cwd()})")
        return model, None  # a hub id
    if (folder / "adapter_config.json").is_file():
        named = base or _base_of(folder)
        if named is None:
            raise EvaluationError(
                f"{model} is an adapter and does not say of which model; give it with --base-model"
            )
        if Path(named).is_dir():
            _check_checkpoint(Path(named))
        return named, model
    _check_checkpoint(folder)
    return model, None


def _base_of(folder: Path) -> str | None:
    for name, key in (("args.json", "model"), ("adapter_config.json", "base_model_name_or_path")):
        try:
            value = json.loads((folder / name).read_text(encoding="utf-8")).get(key)
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(value, str) and value:
            return value
    return None


def _check_checkpoint(folder: Path) -> None:
    needed = {
        "a configuration": ("config.json",),
        "weights": ("*.safetensors", "*.bin"),
        "a tokenizer": ("tokenizer.json", "vocab.json", "tokenizer.model"),
        "a processor": ("preprocessor_config.json", "processor_config.json"),
    }
    for what, names in needed.items():
        if not any(any(folder.glob(name)) for name in names):
            remedy = (
                "; `--save_only_model` keeps it, a copy of the weights alone does not: copy "
                "preprocessor_config.json and the tokenizer from the model it was trained from"
                if what in ("a processor", "a tokenizer")
                else "; is this the folder of one checkpoint, such as .../checkpoint-100?"
            )
            raise EvaluationError(
                f"the checkpoint {folder} has no {what.split()[-1]} ({' or '.join(names)}){remedy}"
            )


def load_engine(settings: Settings) -> tuple[Callable[..., list[Any]], int]:
    """What answers a list of requests, and how many questions it is handed at once.

    The arguments are those of `swift infer`: an engine built without them drops the family's
    system prompt where a checkpoint's args.json does not state one.
    """
    from swift.arguments import InferArguments
    from swift.pipelines.infer.infer import SwiftInfer

    model, adapter = model_and_adapter(settings.model, settings.base_model)
    name = chosen_engine(settings.engine)
    options: dict[str, Any] = {
        "model": model,
        "infer_backend": name,
        "max_batch_size": settings.batch_size,
        "stream": False,
        "seed": settings.seed,
    }
    if adapter is not None:
        options["adapters"] = [adapter]
    if settings.dtype is not None:
        options["torch_dtype"] = settings.dtype
    if name == "vllm":
        options["vllm_limit_mm_per_prompt"] = {"image": 1}
        if adapter is not None:
            options["vllm_max_lora_rank"] = _rank_of(Path(adapter))
    unknown = set(settings.engine_options) - {f.name for f in fields(InferArguments)}
    if unknown:
        raise EvaluationError(
            f"--engine-options: `swift infer` has no flag --{sorted(unknown)[0]}; its flags are "
            "those that `swift infer --help` lists"
        )
    runner = SwiftInfer(InferArguments(**{**options, **settings.engine_options}))
    size = max(VLLM_CHUNK, settings.batch_size) if name == "vllm" else settings.batch_size
    return partial(runner.infer_engine.infer, use_tqdm=False, **runner.infer_kwargs), size


def view_for(settings: Settings) -> ImageResize | None:
    """How the model sees pictures, where boxes are asked in pixels; DataError where no rule is
    known for it.
    """
    if settings.frame != "pixels":
        return None
    model, _ = model_and_adapter(settings.model, settings.base_model)
    command = CommandLine(
        model=model,
        model_type=settings.engine_options.get("model_type"),
        max_pixels=settings.engine_options.get("max_pixels"),
    )
    return needed_image_resize(command, f"{settings.dataset}:pixels")


def _rank_of(adapter: Path) -> int:
    """vLLM wants to know it, in the steps that it knows."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    rank = max([int(config.get("r", 16)), *map(int, (config.get("rank_pattern") or {}).values())])
    return next((step for step in (8, 16, 32, 64, 128, 256) if step >= rank), 512)


def chunks(found: Iterator[Question], size: int) -> Iterator[list[Question]]:
    part: list[Question] = []
    for question in found:
        part.append(question)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def answer(
    settings: Settings,
    found: Iterator[Question],
    write: Callable[[list[str]], None],
    problems: Problems,
) -> None:
    """Ask every question; ``write`` gets the lines of each batch as it is done."""
    first = next(found, None)
    if first is None:
        return  # nothing left to ask: no model is loaded
    from itertools import chain

    from swift.infer_engine import RequestConfig

    view = view_for(settings)
    ask, at_once = load_engine(settings)
    config = RequestConfig(
        max_tokens=settings.max_tokens, temperature=settings.temperature, seed=settings.seed
    )
    for part in chunks(chain([first], found), at_once):
        write(answer_batch(ask, config, settings, part, problems, view))


def answer_batch(
    ask: Callable[..., list[Any]],
    config: Any,
    settings: Settings,
    part: Sequence[Question],
    problems: Problems,
    view: ImageResize | None = None,
) -> list[str]:
    """The lines of one batch. Pictures that are broken are counted; an error of the engine ends
    the run, which goes on from here when it is started again. ``view`` is needed for pixels.
    """
    from swift.infer_engine import InferRequest

    from swift_vlrft.datasets.training import with_prompt

    asked: list[tuple[Question, Any, Any]] = []
    for row in part:
        try:
            picture = open_image(row.image, row.place)
        except DataError as error:
            problems.add("pictures that cannot be opened, not asked", error)
            continue
        if settings.task in BOX_TASKS:
            other = size_problem(row.image, ImageInfo(*picture.size, plain=True), row.drawn)
            if other is not None:
                problems.add("pictures of another size than the annotations say, not asked", other)
                continue
        try:
            sees = None if view is None else view.size
            question, seen = framed(row, settings.task, settings.frame, picture.size, sees)
        except ValueError as error:
            problems.add("rows whose boxes cannot be put into the frame, not asked", error)
            continue
        asked.append((question, picture, seen))
    requests = [InferRequest(with_prompt(q.problem), images=[picture]) for q, picture, _ in asked]
    answers = ask(requests, config) if requests else []
    lines = []
    for (question, picture, seen), response in zip(asked, answers, strict=True):
        if isinstance(response, Exception):
            raise EvaluationError(f"question {question.id}: the engine failed: {response}")
        said = response.choices[0]
        usage = getattr(response, "usage", None)
        lines.append(
            answer_line(
                question,
                settings.task,
                said.message.content,
                image_id=_image_key(question.image),
                size=picture.size,
                tokens=getattr(usage, "completion_tokens", None),
                finish=said.finish_reason,
                seen=seen,
            )
        )
    return lines


def _image_key(image: dict[str, Any]) -> str:
    """Rows with the same picture share it, whatever their file names are."""
    content = image.get("bytes")
    if content is None:
        return str(image.get("path"))
    return content_key(content)


def run_worker(
    folder: Path,
    settings: Settings,
    worker: int = 0,
    workers: int = 1,
    progress: Callable[[int], None] = lambda n: None,
) -> None:
    """Answer this worker's share of what is left, into a part of its own."""
    problems = Problems()
    part = new_part(folder)
    with part.open("a", encoding="ascii") as file:

        def write(lines: list[str]) -> None:
            file.write("".join(lines))
            file.flush()
            progress(len(lines))

        answer(
            settings,
            pending(settings, answered(folder), problems, worker, workers),
            write,
            problems,
        )
    if not part.stat().st_size:
        part.unlink()


def gpu_count() -> int:
    import torch

    return int(torch.cuda.device_count())


def run_workers(
    folder: Path, settings: Settings, workers: int, progress: Callable[[int], None]
) -> None:
    """Data parallel: one process per GPU, each with the whole model."""
    done_before = len(answered(folder))
    visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    gpus = gpu_count()
    command = [sys.executable, "-m", "swift_vlrft.swift_plugin.inference", str(folder)]
    processes = []
    for worker in range(workers):
        environment = dict(os.environ)
        if gpus:
            device = worker % gpus
            environment["CUDA_VISIBLE_DEVICES"] = visible[device] if visible else str(device)
        log = (folder / f"worker-{worker}.log").open("w")
        processes.append(
            subprocess.Popen(
                [*command, str(worker), str(workers)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        )
    try:
        shown = done_before
        while any(process.poll() is None for process in processes):
            time.sleep(0.5)
            shown = _show(folder, shown, progress)
            if any(process.poll() not in (None, 0) for process in processes):
                break
        _show(folder, shown, progress)
        codes = [process.poll() for process in processes]
    finally:
        # One has failed, or this process is being stopped: none goes on alone.
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait()
    for n, code in enumerate(codes):
        if code not in (None, 0):  # None: it was ended above, as another had failed
            tail = (folder / f"worker-{n}.log").read_text(errors="replace")[-1500:]
            raise EvaluationError(
                f"worker {n} ended with exit code {code}; {folder}/worker-{n}.log ends:\n{tail}"
            )


def _show(folder: Path, shown: int, progress: Callable[[int], None]) -> int:
    now = 0
    for part in (folder / "parts").glob("part-*.jsonl"):
        with part.open("rb") as file:
            now += sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    if now > shown:
        progress(now - shown)
    return max(now, shown)


def main(arguments: Sequence[str]) -> None:
    folder, worker, workers = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    run_worker(folder, Settings.from_dict(record["settings"]), worker, workers)


if __name__ == "__main__":
    main(sys.argv[1:])
