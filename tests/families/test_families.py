"""Every family through every room: what a new file must fulfil to be one."""

import json
import math
from pathlib import Path

import pytest
from support.swift_run import run_python

from swift_vlrft.families import FAMILIES, family_of, known_family
from swift_vlrft.families.family import TinySize
from swift_vlrft.families.fixed import Budget, Squash
from swift_vlrft.families.tiles import Slices, Tiles
from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.models import read_model
from swift_vlrft.memory.settings import parse_gpus
from swift_vlrft.parsing.answers import read_boxes
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.model import family
from swift_vlrft.recipe.run import read_run

OTHER_HEADS = ("_emb", "_reranker", "_prm", "_gme", "_reward")
"""What follows the family in ms-swift's types of models that do not write text."""

NAMES = list(map(json.loads, Path(__file__).with_name("names.jsonl").open()))

each = pytest.mark.parametrize("name", FAMILIES)


def name_of(found):
    return found and found.name


def test_a_configuration_is_of_one_family_only():
    for known in FAMILIES.values():
        kind = known.model_types[0]
        assert known_family(known.name) is known and kind in known_family(kind).model_types
        values = known.tiny.config(TinySize(), 512)
        assert values["model_type"] in known.model_types
        assert family_of(config=values) is family_of(config=values, model_type=kind) is known
    assert family_of(model_type="llava") is family_of(config={}) is None


@pytest.mark.parametrize("row", [row for row in NAMES if "name" in row], ids=str)
def test_names_on_the_hub(row):
    assert name_of(family_of(name=row["name"])) == row["family"]


@pytest.mark.parametrize(
    "name",
    [
        *("Qwen/Qwen3-VL-2B-Instruct", "Qwen/Qwen3-VL-235B-A22B-Instruct", "Qwen/Qwen3.5-0.8B"),
        *("zai-org/GLM-4.5V", "zai-org/GLM-4.6V", "zai-org/GLM-4.6V-Flash"),
        *("OpenGVLab/InternVL3_5-14B-HF", "OpenGVLab/InternVL3_5-30B-A3B-HF"),
        *("google/gemma-4-E2B-it", "openbmb/MiniCPM-V-4.6"),
    ],
)
def test_the_planner_knows_models_by_their_names_on_the_hub(name):
    model = read_model(name)
    assert model.family is family_of(name=name) is not None
    assert model.parameters.total > 5e8


@pytest.mark.parametrize("row", [row for row in NAMES if "values" in row], ids=str)
def test_families_of_one_type_are_told_apart(row, tmp_path):
    values, expected = row["values"], row["family"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert name_of(family_of(config=values)) == expected
    assert name_of(family_of(name=str(tmp_path))) == expected
    if values["model_type"] == "chatglm":  # the command's word counts
        told = family_of(model_type="chatglm4v", name=str(tmp_path))
        assert name_of(told) == (expected or "chatglm4v")
        by_name = family_of(model_type="chatglm4v", name="zai-org/cogagent-9b-20241220")
        assert name_of(by_name) == "cogagent_9b"


@pytest.mark.slow
def test_what_ms_swift_knows_is_what_the_files_say():
    """Model types, names on the hub, templates and what each writes before a completion."""
    code = """
import json
from swift.model import MODEL_MAPPING
from swift.template import TEMPLATE_MAPPING
models = {}
for kind, meta in MODEL_MAPPING.items():
    ids = [model.hf_model_id for group in meta.model_groups for model in group.models]
    templates = {group.template or meta.template for group in meta.model_groups}
    templates = sorted(filter(None, templates))
    models[str(kind)] = {"ids": [name for name in ids if name], "templates": templates}
prefixes = {}
for name, meta in TEMPLATE_MAPPING.items():
    thinks = meta.is_thinking and not meta.non_thinking_prefix  # template/base.py: __init__
    prefixes[str(name)] = meta.thinking_prefix if thinks else meta.non_thinking_prefix
print(json.dumps([models, prefixes]))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr[-2000:]
    models, prefixes = json.loads(done.stdout.strip().splitlines()[-1])
    for known in FAMILIES.values():
        for kind in known.model_types:
            if kind not in ("chatglm", "glm46v"):  # transformers' names, not ms-swift's
                assert set(known.templates) & set(models[kind]["templates"]), kind
        assert known.templates.items() <= prefixes.items()
    for kind, model in models.items():
        for name in model["ids"]:
            found = family_of(name=name)
            if found and not kind.endswith(OTHER_HEADS):
                assert kind in found.model_types, (name, kind, found.name)


@each
def test_coordinates(name):
    known, rule = FAMILIES[name], FAMILIES[name].images
    if rule is None:
        assert known.box_format is None and known.box_answer is None
        return
    width, height = rule.size(640, 480)
    assert width % rule.factor == height % rule.factor == 0
    parts = rule.parts(640, 480)
    assert rule.tokens(640, 480) * rule.factor**2 == sum(map(math.prod, parts))
    assert parts == [(width, height)] or isinstance(rule, Slices | Tiles)
    assert rule.limits(environ={}) == (rule.min_pixels, rule.max_pixels)
    if known.box_answer is None:
        assert known.box_format is None  # GLM-4V cannot ground
        return
    (box,) = read_boxes(known.box_answer).boxes
    assert known.box_format in BOX_FORMATS
    # As read, x first; test_native.py: what `:native` writes for each.
    pixels = known.box_format == "pixels"
    assert tuple(box) == ((164, 144, 187, 174) if pixels else (254, 303, 291, 365))
    keys = {"gemma4": "box_2d"} | dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_5"), "bbox_2d")
    assert known.box_key == keys.get(name)


@pytest.mark.slow
@each
def test_a_written_checkpoint_is_recognised_and_loads(name, checkpoint):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    known, folder = FAMILIES[name], checkpoint(name)
    assert family_of(name=str(folder)) is known
    assert family_of(config=json.loads((folder / "config.json").read_text())) is known
    assert json.loads((folder / "args.json").read_text())["template"] in known.templates
    stops = AutoConfig.from_pretrained(folder).get_text_config().eos_token_id
    eos = known.tiny.special_ids[known.tiny.eos]
    assert eos in stops if isinstance(stops, list) else eos == stops
    auto = AutoModelForImageTextToText if known.images else AutoModelForCausalLM
    _, loading = auto.from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]


@pytest.mark.slow
@each
def test_the_processor_counts_as_the_file_says(name, checkpoint):
    from PIL import Image
    from transformers import AutoConfig, AutoProcessor

    known, rule, folder = FAMILIES[name], FAMILIES[name].images, checkpoint(name)
    if rule is None or isinstance(rule, Budget | Slices):
        return  # test_slices.py, test_resize.py
    rule = rule.of(folder)
    tokens = rule.tokens(640, 480)
    if isinstance(rule, Squash):  # tests/chatglm4v: the processor; ms-swift's template
        assert tokens == AutoConfig.from_pretrained(folder).image_tokens == 16
        return
    processor = AutoProcessor.from_pretrained(folder)
    image = [{"type": "image"}, {"type": "text", "text": "red"}]
    text = processor.apply_chat_template([{"role": "user", "content": image}])
    made = processor(text=text, images=[Image.new("RGB", (640, 480))], return_tensors="pt")
    ids = made["input_ids"][0].tolist()
    if isinstance(rule, Tiles):  # test_resize.py: any size
        shapes = [tuple(pixels.shape[1:]) for pixels in made["pixel_values"]]
        assert shapes == rule.parts(640, 480)
        assert ids.count(processor.image_token_id) == tokens == 52
        return
    _, rows, columns = made["image_grid_thw"][0].tolist()
    assert max(map(ids.count, known.tiny.special_ids.values())) == rows * columns // 4
    patch, most = rule.factor // 2, known.tiny.image_options["max_pixels"] * rule.frames
    assert (columns * patch, rows * patch) == rule.within(max_pixels=most).size(640, 480)


LENGTHS = """
import sys
from PIL import Image
from swift.model import get_processor
from swift.template import get_template
template = get_template(get_processor(sys.argv[1]))
template.set_mode("train")
def length(text, images):
    turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "red"}]
    return len(template.encode({"messages": turn, "images": images})["input_ids"])
bare = length("red", [])
for size in sys.argv[2:]:
    image = Image.new("RGB", tuple(map(int, size.split("x"))))
    print("length", length("<image>red", [image]) - bare)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma4", "minicpmv4_6"])
def test_the_template_of_ms_swift_counts_as_the_rule(name, checkpoint):
    """The whole prompt with an image against the one without it."""
    folder = checkpoint(name)
    rule = FAMILIES[name].images.of(folder, {})
    sizes = [(640, 480), (90, 300), (30, 30), (3000, 20)]
    done = run_python(LENGTHS, str(folder), *(f"{width}x{height}" for width, height in sizes))
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("length")]
    counted = [rule.tokens(*size) + rule.marks(*size) for size in sizes]
    assert [int(length) for _, length in rows] == counted


def run_of(folder, model, more=""):
    path = folder / "run.sh"
    path.write_text(
        f"swift rlhf --rlhf_type grpo --model {model} --dataset x:norm1000 --tuner_type full "
        f"--reward_funcs vlrft_detection_iou --per_device_train_batch_size 8 {more}\n"
    )
    return read_run(path, {})


@pytest.mark.slow
@each
def test_rules(name, checkpoint, tmp_path):
    known, run = FAMILIES[name], run_of(tmp_path, checkpoint(name))
    assert family(run) is known
    texts = {finding.rule: finding.text for finding in check_recipe(run)}
    limited = known.images is not None and known.images.adjustable
    assert ("max-pixels" in texts) == limited
    if limited:
        flag = "MAX_PIXELS is not set" if known.images.from_environment else "--max_pixels"
        assert flag in texts["max-pixels"]
    assert ("frame" in texts) == (known.box_format in ("pixels", "yx1000"))
    assert ("grounding" in texts) == (known.images is not None and known.box_answer is None)


@pytest.mark.slow
@each
def test_planner(name, checkpoint, tmp_path):
    known = FAMILIES[name]
    settings = settings_of(run_of(tmp_path, checkpoint(name)), parse_gpus("1x80"))
    model = settings.model
    assert model.family is known and model.sees == bool(known.images)
    # tests/shared_prefix holds those that share against separate rows.
    assert set(known.shared_prefix) <= set(known.model_types)
    why = known.why_not_shared if known.images else "it takes no images"
    assert (why is None) == (model.why_not_shared is None) == bool(known.shared_prefix)
    assert (model.why_not_shared or "").endswith(why or "")
    if known.images:
        low, pixels = known.images.limits(model=checkpoint(name), environ={})
        largest = pixels / known.images.frames / known.images.factor**2
        if isinstance(known.images, Tiles):
            largest += low / known.images.factor**2  # the thumbnail
        assert 0.9 * largest < settings.image_tokens <= largest
        assert model.vit_layers == 2 and model.vit_intermediate
    plan = estimate(settings)
    assert plan.fits and model.parameters.total * 2 <= plan.peak.total
