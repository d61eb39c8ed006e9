"""Gemma 4's image features under ms-swift's forward pass, and under one that takes a tuple."""

import pytest
from support.plugin_run import answer_of

from swift_vlrft.tiny.checkpoint import write_tiny

COMPARE = """
import torch
from PIL import Image
from swift.model import get_model_processor
from swift.template import get_template

def logits(model, rows):
    with torch.no_grad():
        return model(**template.data_collator([dict(row) for row in rows])).logits

model, processor = get_model_processor(sys.argv[2], torch_dtype=torch.float32)
template = get_template(processor, template_type="gemma4_nothinking")
template.set_mode("train")
rows = [template.encode({
    "messages": [{"role": "user", "content": "<image>" * len(colours) + "Which?"},
                 {"role": "assistant", "content": "this"}],
    "images": [Image.new("RGB", (64 * n + 64, 96), c) for n, c in enumerate(colours)],
}) for colours in (["red"], ["blue", "green"])]
swift = logits(model, rows)
model.model.forward = model.model.origin_forward  # transformers' own joins the tuple itself
print(json.dumps((swift - logits(model, rows)).abs().max().item()))
"""


def test_both_ways_to_read_the_features_give_the_same_logits(tmp_path):
    write_tiny("gemma4", tmp_path / "model")
    difference, _ = answer_of("--model", str(tmp_path / "model"), then=COMPARE)
    assert difference < 1e-5


@pytest.mark.parametrize(
    ("model", "loader"),
    [("google/gemma-4-E4B-it", "FeaturesLoader"), ("google/gemma-4-12B-it", "Gemma4Loader")],
)
def test_only_its_own_models_get_the_loader(model, loader):
    then = """
from swift.model import MODEL_MAPPING
changed = {n: m.loader.__name__ for n, m in MODEL_MAPPING.items() if "Features" in str(m.loader)}
print(json.dumps([changed, MODEL_MAPPING["gemma4"].loader.__name__]))
"""
    (changed, of_gemma4), _ = answer_of("--model", model, then=then)
    assert of_gemma4 == loader and set(changed) <= {"gemma4"}
