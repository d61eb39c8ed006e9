"""GLM-4V's template and loader in ms-swift, in a process of its own: they enter its registries."""

import json
import shutil

import pytest
from support.plugin_run import answer_of, refusals
from support.swift_run import run_python

from swift_vlrft.chatglm4v.tokenizer import tokenizer_of
from swift_vlrft.families.chatglm4v import SPECIAL_IDS

pytestmark = pytest.mark.slow  # ms-swift is imported

BOI, PAD, EOI, USER, ASSISTANT = (
    SPECIAL_IDS[f"<|{name}|>"]
    for name in ("begin_of_image", "endoftext", "end_of_image", "user", "assistant")
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
def row(*turns):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    return {"messages": messages, "images": [picture] * str(turns).count("<image>")}
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    # Not in this process: it imports what changes the environment, and with another one the next
    # processes would be forked from another server.
    code = (
        "import sys\nfrom pathlib import Path\nfrom support.glm4v_folder import write_published\n"
    )
    code += "for name in ('chatglm4v', 'cogagent_9b'):\n"
    code += "    write_published(Path(sys.argv[1], name), name)"
    folder = tmp_path_factory.mktemp("glm")
    done = run_python(code, str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def run(folder, code):
    """What it prints last."""
    done = run_python(f"{OPEN}\n{code}", str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def ids(folder, text):
    return tokenizer_of(folder)(text, add_special_tokens=False)["input_ids"]


def test_prompts_labels_positions_and_images(folders):
    glm = folders / "chatglm4v"
    seen = run(
        glm,
        """
from swift_vlrft.chatglm4v.image_processor import ChatGLM4VImageProcessor
_, template = open_template(max_length=512)
rows = [row("<image>red?", "yes"), row("blue", "no"), row("late <image>", "x"),
    row("a", "yes", "b<image>", "no")]
template.set_mode("train")
encoded = [template.encode(one) for one in rows]
batches = {}
for side in ("right", "left"):
    template.padding_side = side
    batch = template.data_collator([dict(one) for one in encoded])
    batches[side] = [batch[k].tolist() for k in ("input_ids", "attention_mask", "position_ids")]
    pixels = batch["pixel_values"]
same = torch.equal(pixels[0], ChatGLM4VImageProcessor.of(template.config)([picture],
    return_tensors="pt")["pixel_values"][0])
asked = {}
for mode in ("transformers", "vllm"):
    template.set_mode(mode)
    asked[mode] = template.encode(row("<image>red?"))["input_ids"]
print(json.dumps({"ids": [one["input_ids"] for one in encoded], "labels": [one["labels"] for one in
    encoded], "batches": batches, "pixels": list(pixels.shape), "same": same,
    "asked": asked, "type": template.model_meta.model_type}))
""",
    )
    newline, yes = ids(glm, "\n"), ids(glm, "yes")
    prompt = [*PREFIX, USER, *newline, *IMAGE, *ids(glm, "red?"), ASSISTANT, *newline]
    assert seen["type"] == "chatglm4v" and seen["same"] and seen["pixels"] == [3, 3, 112, 112]
    assert seen["asked"]["transformers"] == prompt
    short = [n for i, n in enumerate(prompt) if not n == prompt[i - 1] == PAD]
    assert seen["asked"]["vllm"] == short
    assert seen["ids"][0] == [*prompt, *yes, PAD]
    assert seen["labels"][0] == [-100] * len(prompt) + [*yes, PAD]
    late = [USER, *newline, *ids(glm, "late "), *IMAGE, ASSISTANT]
    assert seen["ids"][2][2 : 2 + len(late)] == late
    # The answers of both turns are learned; only the last is followed by a token that ends it.
    learned = [n for n in seen["labels"][3] if n != -100]
    assert learned == [*yes, *ids(glm, "no"), PAD]
    longest = max(map(len, seen["ids"]))
    for side, batch in seen["batches"].items():
        for tokens, padded, mask, positions in zip(seen["ids"], *batch, strict=True):
            missing = longest - len(tokens)
            left = missing if side == "left" else 0
            assert padded[left:][: len(tokens)] == tokens
            assert mask == [0] * left + [1] * len(tokens) + [0] * (missing - left)
            first = tokens.index(BOI) if BOI in tokens else longest
            expected = [n - min(max(n - first - 1, 0), 15) for n in range(len(tokens))]
            assert positions[left:][: len(tokens)] == expected


def test_what_is_too_long_keeps_its_image_and_two_images_are_refused(folders):
    errors, kept = run(
        folders / "chatglm4v",
        """
errors, kept = [], []
for length, one in ((18, row("<image>a", "b")), (512, row("<image><image>a", "b")),
                    (512, row("<image>a", "b", "<image>c", "d")),
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
    kept.append(template.encode(row("<image>" + "red " * 50, "b"))["input_ids"])
print(json.dumps([errors, kept]))
""",
    )
    for error, named in zip(
        errors, ("--max_length 36", "2 images", "2 images", "video"), strict=True
    ):
        assert named in error
    for tokens in kept:
        start = tokens.index(BOI)
        assert len(tokens) == 40 and tokens[start : start + 18] == IMAGE


def test_cogagent_is_asked_in_its_own_words(folders):
    steps = "\nHistory steps: \n(Platform: WIN)"
    usual = f"{steps}\n(Answer in Action-Operation format.)"
    asked = {
        "<image>Where is the box?": f"Task: Where is the box?{usual}",
        "<image>Task: half said": f"Task: half said{usual}",
        "Where? In <answer> </answer>.<image>": f"Task: Where? In <answer> </answer>.{steps}",
        "<image>Task: go\nHistory steps: \n(Mac)": "Task: go\nHistory steps: \n(Mac)",
    }
    cog = folders / "cogagent_9b"
    encoded = run(
        cog,
        f"""
_, template = open_template(max_length=512)
result = []
for mode in ("transformers", "train"):
    template.set_mode(mode)
    answer = ["b"] if mode == "train" else []
    result += [template.encode(row(q, *answer))["input_ids"] for q in {list(asked)!r}]
print(json.dumps(result))
""",
    )
    start = [*PREFIX, USER, *ids(cog, "\n"), *IMAGE]
    for tokens, text in zip(encoded, [*asked.values()] * 2, strict=True):
        expected = [*start, *ids(cog, text)]
        assert tokens[: len(expected) + 1] == [*expected, ASSISTANT]


def test_the_token_that_ends_an_answer_is_kept_for_training(folders):
    """It is the pad token, which ms-swift's transformers engine takes out of every answer."""
    *answers, red = run(
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
    assert answers == [
        [[*red, 151329], "red", "stop"],
        [[*red, 151336], "red", "stop"],
        [[*red, 151338], "red", "stop"],
        [[151329], "", "stop"],
        [[100] * 4, answers[4][1], "length"],
        [red, "red", "stop"],  # at the stop word: the model has not ended its answer
    ]


def test_what_is_wrong_is_named_before_a_model_is_loaded(folders, tmp_path):
    glm = folders / "chatglm4v"
    broken = shutil.copytree(glm, tmp_path / "glm-4v-9b")
    (broken / "model-00002-of-00002.safetensors").unlink()
    table = {
        f"--model {broken}": "model-00002-of-00002.safetensors",
        f"--model {glm} --use_liger_kernel true": "--use_liger_kernel",
        f"--model {glm}": "",
    }
    errors, said = refusals(list(table), MAX_PIXELS="401408")
    for named, error in zip(table.values(), errors, strict=True):
        assert named in error and bool(named) == bool(error)
    assert "change nothing" in said


def test_a_run_that_goes_on_gets_the_loader(tmp_path):
    """With --load_args there is no --model."""
    (tmp_path / "args.json").write_text('{"model_type": "chatglm4v"}')
    flags = ("--resume_from_checkpoint", str(tmp_path), "--resume_only_model", "true")
    loader = "from swift.model import MODEL_MAPPING\n"
    loader += "print(json.dumps(MODEL_MAPPING['chatglm4v'].loader.__name__))"
    assert answer_of(*flags, then=loader)[0] == "ChatGLM4VLoader"
