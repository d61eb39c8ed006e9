"""A tiny Qwen2.5-VL that writes one token more often than a random one, which writes it never."""

import shutil
from pathlib import Path


def raise_row(model: Path, folder: Path, token: str, height: float) -> Path:
    """Copy ``model`` into ``folder`` with another row of ``token`` in its head.

    Every token and patch has the same share of the first feature, and the token's logit is made of
    that.
    """
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer

    if folder != model:
        shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    row = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(token)
    for name, value in weights.items():
        if name.endswith("embed_tokens.weight"):  # and of what comes out: they are tied
            value[:, 0] = 0.05
            value[row] = 0
            value[row, 0] = height
        elif name.endswith("merger.mlp.2.bias"):
            value[0] = 0.05
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
