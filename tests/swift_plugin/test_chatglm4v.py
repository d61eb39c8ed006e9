"""GLM-4V's template and loader in ms-swift, in a process of its own: they enter its registries."""

import json
import shutil

import pytest
from support.glm4v_folder import write_published
from support.plugin_run import import_plugin
from support.swift_run import run_python

from swift_vlrft.chatglm4v.vllm_plugin import HF_OVERRIDES
from swift_vlrft.families.chatglm4v import SPECIAL_IDS

BOI, PAD, EOI, USER, ASSISTANT = (
    SPECIAL_IDS[token]
    for token in (
        *("<|begin_of_image|>", "<|endoftext|>", "<|end_of_image|>"),
        *("<|user|>", "<|assistant|>"),
    )
)
PREFIX = [151331, 151333]
IMAGE = [BOI, *[PAD] * 16, EOI]

OPEN = """
import json, sys
import torch
from PIL import Image
from swift.model import get_model_processor
from swift.template import get_template
from swift_vlrft.swift_plugin import chatglm4v
folder = sys.argv[1]
chatglm4v.register(folder)
def open_template(load_model=False, **options):
    model, processor = get_model_processor(folder, load_model=load_model, torch_dtype=torch.float32)
    return model, get_template(processor, **options)
picture = Image.new("RGB", (40, 30), "red")
def row(*turns, images=()):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    return {"messages": messages, "images": list(images)}
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glm")
    for family in ("chatglm4v", "cogagent_9b"):
        write_published(folder / family, family)
    return folder


def run(folder, code):
    done = run_python(f"{OPEN}\n{code}", str(folder), LOG_LEVEL="ERROR")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def ids(folder, text):
    from swift_vlrft.chatglm4v.tokenizer import tokenizer_of

    return tokenizer_of(folder)(text, add_special_tokens=False)["input_ids"]


def test_prompts_labels_positions_and_images(folders):
    glm = folders / "chatglm4v"
    found = run(
        glm,
        """
import numpy as np
from swift_vlrft.chatglm4v.image_processor import ChatGLM4VImageProcessor
_, template = open_template(max_length=512)
rows = [row("<image>red?", "yes", images=[picture]), row("blue", "no"), row("late <image>", "x",
    images=[picture]), row("a", "yes", "b<image>", "no", images=[picture])]
template.set_mode("train")
encoded = [template.encode(one) for one in rows]
batches = {}
for side in ("right", "left"):
    template.padding_side = side
    batch = template.data_collator([dict(one) for one in encoded])
    batches[side] = {k: batch[k].tolist() for k in ("input_ids", "attention_mask", "position_ids")}
    pixels = batch["pixel_values"]
same = torch.equal(pixels[0], ChatGLM4VImageProcessor.of(template.config)([picture],
    return_tensors="pt")["pixel_values"][0])
template.set_mode("transformers")
asked = template.encode(row("<image>red?", images=[picture]))
template.set_mode("vllm")
short = template.encode(row("<image>red?", images=[picture]))["input_ids"]
print(json.dumps({"ids": [one["input_ids"] for one in encoded], "labels": [one["labels"] for one in
    encoded], "batches": batches, "pixels": list(pixels.shape), "same": same,
    "asked": asked["input_ids"], "short": short, "type": template.model_meta.model_type}))
""",
    )
    newline, yes = ids(glm, "\n"), ids(glm, "yes")
    question = [*IMAGE, *ids(glm, "red?")]
    prompt = [*PREFIX, USER, *newline, *question, ASSISTANT, *newline]
    assert found["type"] == "chatglm4v" and found["same"] and found["pixels"] == [3, 3, 112, 112]
    assert found["asked"] == prompt
    assert found["short"] == [n for i, n in enumerate(prompt) if not n == prompt[i - 1] == PAD]
    assert found["ids"][0] == [*prompt, *yes, PAD]
    assert found["labels"][0] == [-100] * len(prompt) + [*yes, PAD]
    late = [USER, *newline, *ids(glm, "late "), *IMAGE, ASSISTANT]
    assert found["ids"][2][2 : 2 + len(late)] == late
    # The answers of both turns are learned; only the last is followed by a token that ends it.
    learned = [n for n in found["labels"][3] if n != -100]
    assert learned == [*yes, *ids(glm, "no"), PAD]
    for side, batch in found["batches"].items():
        longest = max(map(len, found["ids"]))
        for row, expected in enumerate(found["ids"]):
            missing = longest - len(expected)
            left = missing if side == "left" else 0
            assert batch["input_ids"][row][left:][: len(expected)] == expected
            assert batch["attention_mask"][row] == (
                [0] * left + [1] * len(expected) + [0] * (missing - left)
            )
            positions, at = [], -1
            for i, token in enumerate(expected):
                inside = BOI in expected and 1 < i - expected.index(BOI) < 17
                at += not inside
                positions.append(at)
                assert not inside or token == PAD
            assert batch["position_ids"][row][left:][: len(expected)] == positions, (side, row)


def test_what_is_too_long_keeps_its_image_and_two_images_are_refused(folders):
    found = run(
        folders / "chatglm4v",
        """
errors, kept = [], []
for length, one in ((18, row("<image>a", "b", images=[picture])),
                    (512, row("<image><image>a", "b", images=[picture, picture])),
                    (512, row("<image>a", "b", "<image>c", "d", images=[picture, picture])),
                    (512, {**row("<video>a", "b"), "videos": ["x.mp4"]})):
    _, template = open_template(max_length=length, truncation_strategy="left")
    template.set_mode("train")
    try:
        template.encode(one)
    except ValueError as error:
        errors.append(str(error))
for strategy in ("left", "right"):
    _, template = open_template(max_length=40, truncation_strategy=strategy)
    template.set_mode("train")
    kept.append(template.encode(row("<image>" + "red " * 50, "b", images=[picture]))["input_ids"])
print(json.dumps([errors, kept]))
""",
    )
    errors, kept = found
    assert errors == [
        "--max_length 18: an image alone takes 18 tokens; for as many tokens of text give "
        "--max_length 36",
        *[
            "the row has 2 images. GLM-4V and CogAgent take one image a conversation. Leave the "
            "row out, or join its images in one picture"
        ]
        * 2,
        "the row has a video; GLM-4V and CogAgent take images only",
    ]
    for row in kept:
        assert len(row) == 40
        start = row.index(BOI)
        assert row[start : start + 18] == IMAGE


def test_cogagent_is_asked_in_its_own_words(folders):
    asked = {
        "<image>Where is the box?": "Task: Where is the box?\nHistory steps: \n(Platform: WIN)\n"
        "(Answer in Action-Operation format.)",
        "<image>Task: half said": "Task: half said\nHistory steps: \n(Platform: WIN)\n"
        "(Answer in Action-Operation format.)",
        "Where? In <answer> </answer>.<image>": "Task: Where? In <answer> </answer>.\n"
        "History steps: \n(Platform: WIN)",
        "<image>Task: go\nHistory steps: \n(Platform: Mac)": "Task: go\nHistory steps: \n"
        "(Platform: Mac)",
    }
    found = run(
        folders / "cogagent_9b",
        f"""
_, template = open_template(max_length=512)
result = []
for mode in ("transformers", "train"):
    template.set_mode(mode)
    for question in {list(asked)!r}:
        answer = ["b"] if mode == "train" else []
        result.append(template.encode(row(question, *answer, images=[picture]))["input_ids"])
print(json.dumps(result))
""",
    )
    for tokens, text in zip(found, [*asked.values()] * 2, strict=True):
        cog = folders / "cogagent_9b"
        start = [*PREFIX, USER, *ids(cog, "\n"), *IMAGE]
        end = tokens.index(ASSISTANT)
        assert tokens[: len(start)] == start
        assert tokens[len(start) : end] == ids(cog, text)


def test_the_token_that_ends_an_answer_is_kept_for_training(folders):
    """It is the pad token, which ms-swift's transformers engine takes out of every answer."""
    found = run(
        folders / "chatglm4v",
        """
from swift.infer_engine import InferRequest, RequestConfig, TransformersEngine
model, template = open_template(load_model=True)
engine = TransformersEngine(model, template=template)
states = []
model.transformer.output_layer.register_forward_pre_hook(lambda _, args: states.append(args[0]))
def ask(says, limit, stop=()):
    template.set_mode("transformers")
    queue = list(says)
    def logits(module, args, output):
        output = torch.full_like(output, -50.0)
        output[..., queue.pop(0) if queue else 100] = 50.0
        return output
    handle = model.transformer.output_layer.register_forward_hook(logits)
    config = RequestConfig(max_tokens=limit, temperature=0, return_details=True,
        stop=list(stop))
    (response,) = engine.infer([InferRequest(**row("red?"))], config, use_tqdm=False)
    handle.remove()
    choice = response.choices[0]
    return [choice.token_ids, choice.message.content, choice.finish_reason]
red = template.tokenizer("red", add_special_tokens=False)["input_ids"]
print(json.dumps([ask([*red, 151329], 8), ask([*red, 151336], 8), ask([*red, 151338], 8),
    ask([151329], 8), ask([100] * 4, 4), ask([*red, *red, 100], 8, ["d"]), red]))
""",
    )
    *answers, red = found
    assert answers == [
        [[*red, 151329], "red", "stop"],
        [[*red, 151336], "red", "stop"],
        [[*red, 151338], "red", "stop"],
        [[151329], "", "stop"],
        [[100] * 4, answers[4][1], "length"],
        [red, "red", "stop"],  # at the stop word: the model has not ended its answer
    ]


def test_what_is_wrong_is_said_before_a_model_is_loaded(folders, tmp_path):
    broken = shutil.copytree(folders / "chatglm4v", tmp_path / "glm-4v-9b")
    (broken / "model-00002-of-00002.safetensors").unlink()
    done = import_plugin("--model", str(broken))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        f"swift-vlrft: {broken}: model-00002-of-00002.safetensors, named in "
        "model.safetensors.index.json, is missing; download the current revision of "
        "zai-org/glm-4v-9b or zai-org/cogagent-9b-20241220"
    )
    rows = [
        {"messages": [{"role": "user", "content": "<image>a"}], "images": ["a.png"]},
        {"messages": [{"role": "user", "content": "<image><image>b"}], "images": ["a.png"] * 2},
        {"messages": [{"role": "user", "content": "c"}], "images": []},
        {"messages": [{"role": "user", "content": "d"}], "images": ["a.png", "b.png", "c.png"]},
    ]
    several = tmp_path / "several.jsonl"
    several.write_text("\n".join(map(json.dumps, rows)))
    flags = ("--model", str(folders / "chatglm4v"), "--dataset", str(several))
    done = import_plugin(*flags)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        f"swift-vlrft: --dataset {several}: {several}, row 1 has 2 images, and 1 more rows have "
        "several. GLM-4V and CogAgent take one image a conversation. Leave the row out, or join "
        "its images in one picture"
    )


def test_vllm_gets_its_positions_and_a_tokenizer_without_code(folders):
    found = run(
        folders / "chatglm4v",
        """
from transformers import AutoTokenizer
_, template = open_template()
trained = template.prepare_engine_kwargs()
template.set_mode("vllm")
given = template.prepare_engine_kwargs()
tokenizer = AutoTokenizer.from_pretrained(given["tokenizer"], trust_remote_code=True)
text = "[gMASK]<sop><|user|> What is it?"
same = tokenizer(text)["input_ids"] == template.tokenizer(text)["input_ids"]
print(json.dumps({"trained": trained, "overrides": given["hf_overrides"], "same": same}))
""",
    )
    assert found == {"trained": {}, "overrides": HF_OVERRIDES, "same": True}


def test_flags_that_do_nothing_or_fail_late_are_said_first(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("MAX_PIXELS", "401408")
    (tmp_path / "args.json").write_text('{"model_type": "chatglm4v"}')
    # With --load_args, no --model.
    resumed = ("--resume_from_checkpoint", str(tmp_path), "--resume_only_model", "true")
    loader = "from swift.model import MODEL_MAPPING\nprint(MODEL_MAPPING['chatglm4v'].loader)"
    done = import_plugin(*resumed, then=loader)
    assert done.returncode == 0 and "ChatGLM4VLoader" in done.stdout, done.stderr[-3000:]
    assert "change nothing" in done.stdout + done.stderr
    done = import_plugin("--model", str(folders / "chatglm4v"), "--use_liger_kernel", "true")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "swift-vlrft: --use_liger_kernel: liger has no kernels for GLM-4V and CogAgent"
    )
