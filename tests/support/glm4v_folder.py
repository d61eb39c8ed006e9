"""A tiny GLM-4V in a folder like the published one."""

import base64
import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from swift_vlrft.chatglm4v.checkpoint import COMPUTED
from swift_vlrft.chatglm4v.tokenizer import as_bytes, tokenizer_of
from swift_vlrft.families.chatglm4v import SPECIAL_IDS
from swift_vlrft.tiny.checkpoint import write_tiny

INDEX = "model.safetensors.index.json"

CODE = "raise SystemExit('the code of the checkpoint was run')\n"


def write_published(folder: Path, family: str = "chatglm4v") -> Path:
    """Weights in two files with an index, no args.json, and the makers' code, which must not run.

    Its last norm is wide, so that an output layer that is not trained can say anything for certain.
    """
    write_tiny(family, folder)
    save_as_published(tokenizer_of(folder), folder)
    for name in ("args.json", "tokenizer.json", "chat_template.jinja"):
        (folder / name).unlink()
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


def save_as_published(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write tokenizer.model and tokenizer_config.json as the makers do."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    lines = [
        f"{base64.b64encode(as_bytes(token)).decode()} {rank}\n"
        for token, rank in vocabulary
        if token not in SPECIAL_IDS
    ]
    (folder / "tokenizer.model").write_text("".join(lines), encoding="ascii")
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    settings = {
        "added_tokens_decoder": {
            str(number): {"content": token, **flags, "special": True}
            for token, number in SPECIAL_IDS.items()
        },
        "additional_special_tokens": list(SPECIAL_IDS),
        "chat_template": tokenizer.chat_template,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 128000,
        "padding_side": "left",
        "tokenizer_class": "ChatGLM4Tokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
