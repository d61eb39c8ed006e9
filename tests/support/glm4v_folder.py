"""A tiny GLM-4V in a folder like the published one."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from swift_vlrft.chatglm4v.checkpoint import COMPUTED
from swift_vlrft.tiny.checkpoint import write_tiny

INDEX = "model.safetensors.index.json"

CODE = "raise SystemExit('the code of the checkpoint was run')\n"


def write_published(folder: Path, family: str = "chatglm4v") -> Path:
    """Weights in two files with an index, no args.json, and the makers' code, which must not run.

    Its last norm is wide, so that an output layer that is not trained can say anything for certain.
    """
    write_tiny(family, folder)
    (folder / "args.json").unlink()
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weights["transformer.encoder.final_layernorm.weight"] *= 60
    weights[COMPUTED] = weights["transformer.vision.boi"].flatten()
    where = {}
    for shard in (1, 2):
        file = f"model-0000{shard}-of-00002.safetensors"
        part = {name: weights[name] for name in sorted(weights)[shard - 1 :: 2]}
        where |= dict.fromkeys(part, file)
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    model = "modeling_chatglm.ChatGLMForConditionalGeneration"
    auto = {"AutoConfig": "configuration_chatglm.ChatGLMConfig", "AutoModelForCausalLM": model}
    tokenizer = {"AutoTokenizer": ["tokenization_chatglm.ChatGLM4Tokenizer", None]}
    remote = {
        "config.json": {"architectures": ["ChatGLMModel"], "auto_map": auto},
        "tokenizer_config.json": {"auto_map": tokenizer},
    }
    for file, values in remote.items():
        kept = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(kept | values))
    for name in ("configuration", "modeling", "tokenization"):
        (folder / f"{name}_chatglm.py").write_text(CODE)
    return folder
