"""Answer with a model by ms-swift's engines: vLLM if it is installed, else transformers.

    python -m swift_vlrft.swift_plugin.inference runs/eval 0 2      # worker 0 of 2 of that run

Prompts are built by ms-swift's templates, as in training. A LoRA checkpoint is loaded onto the base
model that it names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import DataError, open_image
from swift_vlrft.datasets.image import ImageSize, image_hash, size_problem
from swift_vlrft.evaluation.predictions import EvaluationError, Problems
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.evaluation.run import Manifest, answer_line, answered, new_part, pending
from swift_vlrft.evaluation.settings import Settings
from swift_vlrft.families import family_of
from swift_vlrft.files.checkpoints import weights_problem
from swift_vlrft.files.environment import errors_only
from swift_vlrft.files.records import read_record, write_record
from swift_vlrft.files.writing import free_space, space_named
from swift_vlrft.recipe.run import Run
from swift_vlrft.swift_plugin import video
from swift_vlrft.swift_plugin.command_line import run_of_model
from swift_vlrft.swift_plugin.model import WantedFormat, register_model_of, wanted_box_format

ENGINES = ("auto", "vllm", "transformers")
VLLM_CHUNK = 256
"""Queries per call of vLLM, which batches them itself."""


def chosen_engine(name: str) -> str:
    if name not in ENGINES:
        raise EvaluationError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    has_vllm = importlib.util.find_spec("vllm") is not None
    if name == "vllm" and not has_vllm:
        raise EvaluationError("--engine vllm: vllm is not installed (pip install vllm)")
    return name if name != "auto" else "vllm" if has_vllm and gpu_count() else "transformers"


def gpu_count() -> int:
    import torch

    return int(torch.cuda.device_count())


def model_and_adapter(model: str, base: str | None) -> tuple[str, str | None]:
    """Return what to load: a LoRA checkpoint is an adapter of the model that it names."""
    folder = Path(model)
    if not folder.is_dir():
        if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
            raise EvaluationError(f"the checkpoint {model} does not exist (from {Path.cwd()})")
        return model, None  # a hub id
    if not (folder / "adapter_config.json").is_file():
        _check_checkpoint(folder)
        return model, None
    named = [("args.json", "model"), ("adapter_config.json", "base_model_name_or_path")]
    for file, key in named if base is None else []:
        with suppress(OSError, ValueError, AttributeError):
            base = base or json.loads((folder / file).read_text(encoding="utf-8")).get(key)
    if not isinstance(base, str):
        raise EvaluationError(
            f"{model} is an adapter that does not name its base model; give it with --base-model"
        )
    if Path(base).is_dir():
        _check_checkpoint(Path(base))
    return base, model


TOKENIZER = ("tokenizer.json", "vocab.json", "tokenizer.model")
PROCESSOR = ("preprocessor_config.json", "processor_config.json")


def _check_checkpoint(folder: Path) -> None:
    if problem := weights_problem(folder):
        raise EvaluationError(
            f"the checkpoint {folder}: {problem}; is this the folder of one checkpoint, such as "
            ".../checkpoint-100?"
        )
    needed = [TOKENIZER, PROCESSOR]
    if (family := family_of(name=str(folder))) and family.own_classes:
        needed = [TOKENIZER]  # its config.json says what becomes of images
    for names in needed:
        if not any((folder / name).exists() for name in names):
            raise EvaluationError(
                f"the checkpoint {folder} has no {' or '.join(names)}; `--save_only_model` keeps "
                "it, a copy of the weights alone does not: copy preprocessor_config.json and the "
                "tokenizer from the model it was trained from"
            )


Ask = Callable[..., list[Any]]


@errors_only()
@video.own_limits()
def load_engine(settings: Settings) -> tuple[Ask, int, str | None]:
    """Return a function that answers requests, the queries per call, and the system prompt.

    That is of rows without one. The function gets the arguments of `swift infer`: without them an
    engine drops the family's system prompt.
    """
    from swift.arguments import InferArguments
    from swift.pipelines.infer.infer import SwiftInfer

    model, adapter = model_and_adapter(settings.model, settings.base_model)
    engine = chosen_engine(settings.engine)
    register_model_of(_run(model, settings))
    options: dict[str, Any] = {
        "model": model,
        "adapters": [adapter] if adapter else [],
        "infer_backend": engine,
        "stream": False,
        "max_batch_size": settings.batch_size * settings.samples,
        "seed": settings.seed,
        "torch_dtype": settings.dtype,
    }
    if engine == "vllm":
        options["vllm_limit_mm_per_prompt"] = {"image": settings.max_turns}
        if adapter is not None:
            config = json.loads((Path(adapter) / "adapter_config.json").read_text("utf-8"))
            ranks = [config.get("r", 16), *(config.get("rank_pattern") or {}).values()]
            # Rounded up to one that vLLM supports.
            known = [step for step in (8, 16, 32, 64, 128, 256) if step >= max(map(int, ranks))]
            options["vllm_max_lora_rank"] = min(known, default=512)
    if unknown := set(settings.engine_options) - {f.name for f in fields(InferArguments)}:
        raise EvaluationError(
            f"--engine-options: `swift infer` has no flag --{min(unknown)}; its flags are "
            "those that `swift infer --help` lists"
        )
    runner = SwiftInfer(InferArguments(**{**options, **settings.engine_options}))
    at_once = max(VLLM_CHUNK, settings.batch_size) if engine == "vllm" else settings.batch_size
    ask = partial(runner.infer_engine.infer, use_tqdm=False, **runner.infer_kwargs)
    return ask, at_once, runner.infer_engine.template.template_meta.default_system


def _run(model: str, settings: Settings) -> Run:
    get = settings.engine_options.get
    return run_of_model(model, get("model_type"), max_pixels=get("max_pixels"))


def answer_batch(
    ask: Ask,
    config: Any,
    settings: Settings,
    queries: Sequence[Query],
    problems: Problems,
    wanted: WantedFormat | None = None,
    system: str | None = None,
) -> list[str]:
    """Return the lines of a batch. Broken images are counted, an engine's error ends the run.
    ``system``: the prompt that the template adds to rows without one.
    """
    from swift.infer_engine import InferRequest

    from swift_vlrft.datasets.training import with_prompt

    box_format, key, resize = wanted or (settings.box_format, None, None)
    ready: list[tuple[Query, Any]] = []
    for query in queries:
        row = query.row
        try:
            image = row if row.image.get("video") else open_image(row.image, row.place)
            other = size_problem(row.image, ImageSize(*image.size, plain=True), row.annotated_size)
            if other is not None and row.has_boxes:
                problems.add("images of another size than the annotations say, skipped", other)
                continue
            seen = resize.size(*image.size) if resize and box_format == "pixels" else image.size
            ready.append((query.rewritten(box_format, image.size, seen, key), image))
        except DataError as error:
            problems.add("images that cannot be opened, skipped", error)
        except ValueError as error:
            problems.add("rows whose boxes cannot be put into the box format, skipped", error)
    times = settings.samples // config.n
    requests: list[Any] = []
    for query, image in ready:
        of = query.row.image
        media = {"videos": [of["path"]]} if of.get("video") else {"images": [image]}
        requests += [InferRequest(with_prompt(query.row), **media) for _ in range(times)]
    answers = ask(requests, config) if requests else []
    turns: list[Any] = [None] * len(answers)
    if settings.max_turns > 1 and answers:
        from swift_vlrft.swift_plugin.zoom import answer_in_turns

        columns = [query.row.columns for query, _ in ready]
        most = settings.max_turns
        answers, turns = answer_in_turns(ask, config, requests, answers, columns, most)
    lines = []
    for number, (query, image) in enumerate(ready):
        responses = answers[number * times : (number + 1) * times]
        for response in responses:
            if isinstance(response, Exception):
                raise EvaluationError(f"query {query.id}: the engine failed: {response}")
        hashed = image_hash(query.row.image)
        # Rows with the same image share it, whatever its file names.
        stored = query.row.image.get("bytes") is not None
        image_id = hashed if stored else str(query.row.image.get("path"))
        choices = [(response, choice) for response in responses for choice in response.choices]
        for sample, (response, choice) in enumerate(choices):
            # Of several choices, the engine counts the tokens of all.
            tokens = getattr(getattr(response, "usage", None), "completion_tokens", None)
            lines.append(
                answer_line(
                    query,
                    choice.message.content or "",  # None, where a parser took all of it
                    image_id=image_id,
                    image_hash=hashed,
                    size=image.size,
                    system=query.column("system") or system,
                    sample=sample,
                    tokens=tokens if len(choices) == len(responses) else None,
                    finish=choice.finish_reason,
                    turns=turns[number * times],
                )
            )
    return lines


def run_worker(
    folder: Path,
    queries: QuerySet,
    worker: int = 0,
    workers: int = 1,
    progress: Callable[[int], None] = lambda n: None,
) -> Problems:
    """Answer this worker's share of what is left, into a new part file; return what was skipped."""
    problems, settings = Problems(), queries.settings
    left = pending(queries, answered(folder), Problems(), worker, workers)
    first = next(left, None)
    if first is None:
        return problems  # no model is loaded
    run = _run(model_and_adapter(settings.model, settings.base_model)[0], settings)
    wanted = wanted_box_format(run, settings.box_format, str(settings.dataset))
    ask, at_once, system = load_engine(settings)
    config = _request_config(settings)
    left, part = chain([first], left), new_part(folder)
    while batch := list(islice(left, at_once)):
        lines = answer_batch(ask, config, settings, batch, problems, wanted, system)
        with space_named(part), part.open("a", encoding="ascii") as file:
            file.write("".join(lines))
        progress(len(lines))
    return problems


def _request_config(settings: Settings) -> Any:
    from swift.infer_engine import RequestConfig

    config = RequestConfig(max_tokens=settings.max_tokens, temperature=settings.temperature)
    if settings.samples == 1:
        return replace(config, seed=settings.seed)
    # As GRPO samples, whatever generation_config.json says (Qwen2-VL's: top_k 1); the engine itself
    # has the seed. vLLM computes a prompt once for all of its answers; of transformers each is a
    # request of its own, as in ms-swift's rollouts. That engine takes no limit (-1) as the value of
    # that file.
    vllm = chosen_engine(settings.engine) == "vllm"
    n, top_k = (settings.samples, -1) if vllm else (1, 2**31 - 1)
    return replace(config, n=n, top_p=1.0, top_k=top_k, repetition_penalty=1.0)


def run_workers(
    folder: Path, workers: int, progress: Callable[[int], None] = lambda n: None
) -> Problems:
    """Run one process per GPU, each with a full copy of the model."""
    shown = _lines_in(folder)
    visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    gpus = gpu_count()
    command = [sys.executable, "-m", "swift_vlrft.swift_plugin.inference", str(folder)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for worker in range(workers):
            environment = dict(os.environ)
            if gpus:
                device = worker % gpus
                environment["CUDA_VISIBLE_DEVICES"] = visible[device] if visible else str(device)
            with (folder / f"worker-{worker}.log").open("w") as log:
                share = [*command, str(worker), str(workers)]
                process = subprocess.Popen(share, env=environment, stdout=log, stderr=log)
                processes.append(process)
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            time.sleep(0.5)
            codes = [process.poll() for process in processes]
            lines = _lines_in(folder)
            progress(lines - shown)
            shown = lines
    finally:
        # One has failed, or this process is being stopped: stop all.
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait()
    for n, code in enumerate(codes):
        if code not in (None, 0):  # None: it was ended above, as another had failed
            said = folder / f"worker-{n}.log"
            tail = said.read_text(errors="replace")[-1500:] or f"(nothing{free_space(folder)})"
            raise EvaluationError(f"worker {n} ended with exit code {code}; {said} ends:\n{tail}")
    files = [folder / f"worker-{n}.json" for n in range(workers)]
    return Problems().joined(*(read_record(file, Problems) for file in files))


def _lines_in(folder: Path) -> int:
    return sum(part.read_bytes().count(b"\n") for part in (folder / "parts").glob("part-*.jsonl"))


def main(arguments: Sequence[str]) -> None:
    folder, worker, workers = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    settings = read_record(folder / "run.json", Manifest).settings
    problems = run_worker(folder, QuerySet(settings), worker, workers)
    write_record(folder / f"worker-{worker}.json", problems)


if __name__ == "__main__":
    main(sys.argv[1:])
