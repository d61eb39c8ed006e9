"""Faults between an engine and its trainer, each tried on the same two and taken back."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from inspect import unwrap
from typing import Any
from unittest.mock import patch

from peft.tuners.lora import Linear
from support import cpu_engines  # noqa: F401
from vllm.lora.lora_model import LoRAModel

from swift_vlrft.agreement.verdict import judge
from swift_vlrft.swift_plugin.agreement import process

changed = patch.multiple
"""Attributes of an object or a class, put back afterwards."""


def lost(part: str) -> Callable[[Any], Any]:
    """The synchronisation drops the weights with this in their names."""

    def fault(trainer: Any) -> Any:
        load = trainer._load_state_dict_to_vllm

        def some(weights: dict[str, Any]) -> None:
            load({name: weight for name, weight in weights.items() if part not in name})

        return changed(trainer, _load_state_dict_to_vllm=some)

    return fault


def other_turns(trainer: Any) -> Any:
    """The engine's chat template names the user otherwise."""
    template = trainer.engine.template
    turns = [
        part.replace("user", "human") if isinstance(part, str) else part
        for part in template.template_meta.prompt
    ]
    other = copy(template.template_meta)
    other.prompt = turns
    return changed(template, template_meta=other)


def without_last(trainer: Any) -> Any:
    """One log-probability less than there are tokens, as in ms-swift issue 6890."""
    infer = trainer._engine_infer

    def _engine_infer(*args: Any, **kwargs: Any) -> Any:
        outputs = infer(*args, **kwargs)
        for output in outputs:
            del output.response.choices[0].logprobs["content"][-1]
        return outputs

    return changed(trainer, _engine_infer=_engine_infer)


def scaled(factor: float) -> Callable[[Any], Any]:
    def fault(trainer: Any) -> Any:
        delta = Linear.get_delta_weight
        return changed(Linear, get_delta_weight=lambda self, name: factor * delta(self, name))

    return fault


FULL: dict[str, Callable[[Any], Any]] = {
    "healthy": nullcontext,
    "smaller images": lambda trainer: changed(trainer.engine.template, max_pixels=3136),
    "a prefix": lambda trainer: changed(trainer.engine.template, response_prefix="<think>\n"),
    "other turns": other_turns,
    "top_k": lambda trainer: changed(trainer.request_config, top_k=1000),
    "a penalty": lambda trainer: changed(trainer.request_config, repetition_penalty=1.2),
    "no queries": lost("q_proj"),
    "no vision tower": lost("visual"),
    "no synchronisation": lambda trainer: changed(
        trainer, _move_model_to_vllm=lambda *args, **kwargs: None
    ),
    "a value less": without_last,
}
LORA = {
    "healthy": FULL["healthy"],
    "not merged": scaled(0.0),
    "half the scale": scaled(0.5),
    "twice the scale": scaled(2.0),
}


def written_into(trainer: Any) -> Any:
    """The engine scales the tensors that it is handed, as vLLM does with those of a CPU."""
    return changed(LoRAModel, from_lora_tensors=unwrap(LoRAModel.from_lora_tensors))


IN_THE_ENGINE = {"healthy": FULL["healthy"], "written into": written_into}
FAULTS = {"full": FULL, "lora": LORA, "lora in the engine": IN_THE_ENGINE}


def main(job: str, faults: str, *flags: str) -> None:
    measure = process.measure

    def try_all(trainer: Any, job: Any, why: str) -> Any:
        found = {}
        measured = None
        for name, fault in FAULTS[faults].items():
            with fault(trainer):
                measured = measure(trainer, job, why)
            verdict = judge(measured)
            # As the engine was loaded.
            trainer._move_model_to_vllm()
            numbers = {n: [f.mean, f.worst, f.beyond] for n, f in verdict.figures.items()}
            found[name] = [verdict.word, verdict.said, numbers]
        print("FOUND " + json.dumps(found))
        return measured

    process.measure = try_all
    process.main([job, *flags])
