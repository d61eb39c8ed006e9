"""Gemma 4's image features under ms-swift's forward pass, and under one that takes a tuple."""

import json

from support.plugin_run import import_plugin
from support.swift_run import run_python

from swift_vlrft.tiny.checkpoint import write_tiny

COMPARE = """
import json, sys, torch
from PIL import Image
from swift.model import MODEL_MAPPING, get_model_processor
from swift.template import get_template
from swift_vlrft.swift_plugin import gemma4

def logits(model, rows):
    with torch.no_grad():
        return model(**template.data_collator([dict(row) for row in rows])).logits

before = {name: meta.loader for name, meta in MODEL_MAPPING.items()}
gemma4.register()
changed = [name for name, meta in MODEL_MAPPING.items() if meta.loader is not before[name]]
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
print(json.dumps([changed, (swift - logits(model, rows)).abs().max().item()]))
"""


def test_both_ways_to_read_the_features_give_the_same_logits(tmp_path):
    model = tmp_path / "model"
    write_tiny("gemma4", model)
    done = run_python(COMPARE, str(model), LOG_LEVEL="ERROR")
    assert done.returncode == 0, done.stderr[-3000:]
    changed, difference = json.loads(done.stdout.strip().splitlines()[-1])
    assert changed == ["gemma4"] and difference < 1e-5


def test_only_its_own_models_get_the_loader():
    loader = "from swift.model import MODEL_MAPPING\nprint(MODEL_MAPPING['gemma4'].loader.__name__)"
    for model, expected in (
        ("google/gemma-4-E4B-it", "FeaturesLoader"),
        ("google/gemma-4-12B-it", "Gemma4Loader"),
    ):
        done = import_plugin("--model", model, then=loader)
        assert done.stdout.split()[-1:] == [expected], done.stderr[-3000:]
