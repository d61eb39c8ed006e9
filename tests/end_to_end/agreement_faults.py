"""Faults between an engine and its trainer, each tried on the same two and taken back."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from inspect import unwrap
from typing import Any
from unittest.mock import patch

from peft.tuners.lora import Linear
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


def written_into(trainer: Any) -> Any:
    """The engine scales the tensors that it is handed, as vLLM does with those of a CPU."""
    return changed(LoRAModel, from_lora_tensors=unwrap(LoRAModel.from_lora_tensors))


# For a way to train: what is wrong, how it comes about, and the verdict.
FAULTS: dict[str, list[tuple[str, Callable[[Any], Any], str]]] = {
    "full": [
        ("nothing", nullcontext, "agrees"),
        ("max_pixels", lambda t: changed(t.engine.template, max_pixels=3136), "prompt"),
        ("prefix", lambda t: changed(t.engine.template, response_prefix="<think>\n"), "prompt"),
        ("turns", other_turns, "prompt"),
        ("top_k", lambda t: changed(t.request_config, top_k=1000), "numbers"),
        ("penalty", lambda t: changed(t.request_config, repetition_penalty=1.2), "numbers"),
        ("a value less", without_last, "numbers"),
        ("no queries", lost("q_proj"), "weights"),
        ("no vision tower", lost("visual"), "weights"),
        ("no sync", lambda t: changed(t, _move_model_to_vllm=lambda *_, **__: None), "weights"),
    ],
    "lora": [
        ("nothing", nullcontext, "agrees"),
        ("not merged", scaled(0.0), "weights"),
        ("half the scale", scaled(0.5), "weights"),
        ("twice the scale", scaled(2.0), "weights"),
    ],
    "lora in the engine": [
        ("nothing", nullcontext, "agrees"),
        ("written into", written_into, "weights"),
    ],
}


def main(job: str, faults: str, *flags: str) -> None:
    measure = process.measure

    def try_all(trainer: Any, job: Any, why: str) -> Any:
        for name, fault, expected in FAULTS[faults]:
            with fault(trainer):
                measured = measure(trainer, job, why)
            verdict = judge(measured)
            assert verdict.word == expected, (name, verdict)
            trainer._move_model_to_vllm()  # as the engine was loaded
        print("ALL AS EXPECTED")
        return measured

    process.measure = try_all
    process.main([job, *flags])
