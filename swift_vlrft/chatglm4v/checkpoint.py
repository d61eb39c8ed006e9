"""Check a published folder of GLM-4V or CogAgent, and say in one line what is wrong with it.

    check_checkpoint(Path("glm-4v-9b"))     None, or "its own code (...) is not run: ..."

The Python files beside the weights belong to an old transformers and are never run: configuration,
tokenizer, images and model are this package's, under the names of the published weights.
"""

from __future__ import annotations

import json
from pathlib import Path

from swift_vlrft.chatglm4v.configuration import VISION, ChatGLM4VConfig
from swift_vlrft.files.checkpoints import tensor_shapes, weight_files, weights_problem

AGAIN = "download the current revision of zai-org/glm-4v-9b or zai-org/cogagent-9b-20241220"
COMPUTED = "transformer.rotary_pos_emb.inv_freq"
"""Published with the weights, computed by the model."""

Shapes = dict[str, tuple[int, ...]]


def check_checkpoint(folder: Path) -> str | None:
    """Check a folder; ValueError says in a line what cannot be used and what to do. Return a
    line for the log that names the code in the folder that is not run.
    """
    config = read_config(folder)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        raise ValueError(f"{folder} has no tokenizer.model; {AGAIN}")
    weights = weights_in(folder)
    if getattr(config, "quantization_config", None) is None:
        _compare(folder, expected_weights(config), weights)
    code = sorted(file.name for file in folder.glob("*.py"))
    if not code:
        return None
    return f"{folder}: its own code ({', '.join(code)}) is not run; swift_vlrft.chatglm4v stands in"


def read_config(folder: Path) -> ChatGLM4VConfig:
    """Read config.json without its references to code; ValueError for another model's."""
    file = folder / "config.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read ({error}); {AGAIN}") from error
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind != ChatGLM4VConfig.model_type:
        raise ValueError(f"{file}: model_type is {kind!r}; GLM-4V's is 'chatglm'")
    vision = values.get("vision_config")
    if not isinstance(vision, dict):
        raise ValueError(f"{file} has no vision_config: a language model, or an old file; {AGAIN}")
    if missing := [key for key in VISION if key not in vision]:
        raise ValueError(f"{file}: vision_config lacks {', '.join(missing)}; {AGAIN}")
    values.pop("auto_map", None)
    config: ChatGLM4VConfig = ChatGLM4VConfig.from_dict(values)
    try:
        config.check()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    return config


def weights_in(folder: Path) -> Shapes:
    """Read name and shape of every weight from the headers of the safetensors files."""
    if not any(folder.glob("*.safetensors")) and any(folder.glob("pytorch_model*.bin")):
        raise ValueError(f"{folder}: its weights are pickles of an old revision; {AGAIN}")
    if problem := weights_problem(folder):
        raise ValueError(f"{folder}: {problem}; {AGAIN}")
    return {name: of for file in weight_files(folder) for name, of in tensor_shapes(file).items()}


def expected_weights(config: ChatGLM4VConfig) -> Shapes:
    """Return name and shape of every weight of the model, which is built without memory."""
    import torch

    from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration

    with torch.device("meta"):
        model = ChatGLM4VForConditionalGeneration(config)
    return {name: tuple(weight.shape) for name, weight in model.state_dict().items()}


def _compare(folder: Path, expected: Shapes, weights: Shapes) -> None:
    found = {
        "weights are missing": [name for name in expected if name not in weights],
        "are unknown": [n for n in weights if n not in expected and n != COMPUTED],
        "have another shape": [
            f"{name} is {list(weights[name])}, not {list(shape)}"
            for name, shape in expected.items()
            if weights.get(name, shape) != shape
        ],
    }
    problems = [
        f"{len(names)} {what} ({', '.join(names[:2])}{', ...' * (len(names) > 2)})"
        for what, names in found.items()
        if names
    ]
    if problems:
        raise ValueError(
            f"{folder}: the weights are not those of its config.json: {'; '.join(problems)}. "
            f"They are of another revision or model: {AGAIN}"
        )
