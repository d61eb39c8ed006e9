"""A full-size Qwen2.5-VL with random weights: for memory and seconds a step, not for rewards.

    python benchmarks/full_size.py /tmp/qwen2_5_vl_3b       # 3.75 B parameters, 7.5 GB, no network

Shapes are those of the published config.json of Qwen2.5-VL-3B-Instruct; tokenizer and processor are
those of `vlrft tiny`, with the real ids.
"""

import argparse
from pathlib import Path

from swift_vlrft.families import FAMILIES
from swift_vlrft.tiny.checkpoint import build_tokenizer, save_checkpoint

TEXT = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128000,
    "vocab_size": 151936,
    "bos_token_id": None,
    "eos_token_id": 151645,
    "pad_token_id": 151643,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [16, 24, 24],
    },
}
VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 2048,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory

    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    family = FAMILIES["qwen2_5_vl"]
    tiny = family.tiny
    config = Qwen2_5_VLConfig(text_config=TEXT, vision_config=VISION, tie_word_embeddings=True)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2_5_VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = tiny.special_ids[tiny.eos]
    model.generation_config.pad_token_id = tiny.special_ids[tiny.pad]
    torch.set_default_dtype(torch.float32)
    save_checkpoint(model.cpu(), build_tokenizer(tiny), family, directory)
    print(f"{directory}: {sum(p.numel() for p in model.parameters()) / 1e9:.2f} B parameters")


if __name__ == "__main__":
    main()
