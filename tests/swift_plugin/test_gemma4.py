"""Gemma 4's image features under ms-swift's forward pass, and under one that takes a tuple."""

import json

import pytest
from support.plugin_run import answer_of
from support.swift_run import run_python

pytestmark = pytest.mark.slow  # ms-swift is imported

COMPARE = """
import json, sys, torch
from pathlib import Path
from PIL import Image
from swift.model import get_model_processor
from swift.template import get_template
from swift_vlrft.swift_plugin import gemma4
from swift_vlrft.tiny.checkpoint import write_tiny

def logits(model, rows):
    with torch.no_grad():
        return model(**template.data_collator([dict(row) for row in rows])).logits

gemma4.register()
write_tiny("gemma4", Path(sys.argv[1]))
model, processor = get_model_processor(sys.argv[1], torch_dtype=torch.float32)
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
    done = run_python(COMPARE, str(tmp_path / "model"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) < 1e-5


def test_only_its_own_models_get_the_loader():
    then = """
from swift.model import MODEL_MAPPING
print(json.dumps([n for n, meta in MODEL_MAPPING.items() if "Features" in meta.loader.__name__]))
"""
    for model, changed in (("google/gemma-4-E4B-it", ["gemma4"]), ("google/gemma-4-12B-it", [])):
        assert answer_of("--model", model, then=then)[0] == changed
