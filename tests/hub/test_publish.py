"""`vlrft publish`: what goes up, what the card says, and what is refused."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.finished_run import write_checkpoint, write_evaluation, write_run
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.hub.cards import model_card
from swift_vlrft.hub.checkpoint import open_checkpoint
from swift_vlrft.recipe.facts import facts

BASE = "Qwen/Qwen3-VL-2B-Instruct"
TABLE = list(map(json.loads, Path(__file__).with_name("publish.jsonl").open()))


def cases(of):
    rows = [row for row in TABLE if row["of"] == of]
    return pytest.mark.parametrize("case", rows, ids=lambda row: row["why"])


@pytest.fixture
def demo(tmp_path):
    return write_run(tmp_path / "runs" / "demo")


def publish(*arguments, hub="hf", code=0, **variables):
    """Its stdout and stderr, each in one line."""
    words = ["publish", "--repo", "me/shapes", "--hub", hub, *map(str, arguments)]
    done = CliRunner().invoke(app, words, env=variables)
    assert done.exit_code == code, done.output
    return " ".join(done.stdout.split()), " ".join(done.stderr.split())


def refusal(*arguments, **more):
    return publish(*arguments, code=2, **more)[1]


def card_of(demo, tmp_path, *arguments):
    """The text of the card, and what was said besides."""
    _, said = publish(demo, "--card-only", tmp_path / "card", *arguments)
    text = (tmp_path / "card" / "README.md").read_text()
    shutil.rmtree(tmp_path / "card")
    return text, said


def model_card_of(*arguments, hub="hf"):
    card = model_card(open_checkpoint(*arguments), hub, "me/shapes")
    return card.files["README.md"].decode()


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_card_says_what_ran_and_what_came_of_it(demo, tmp_path):
    text, said = card_of(demo, tmp_path, "--license", "apache-2.0")
    data = ModelCard(text).data
    assert data.license == "apache-2.0" and data.library_name == "transformers"
    assert data.datasets == ["laolao77/ViRFT_COCO_base65"]
    (result,) = data.eval_results  # read by the library's own reader of model-index
    assert result.metric_type == "accuracy" and result.metric_value == 0.9
    row = re.search(r"^\| accuracy \| (.*) \| (.*) \|$", text, re.M).groups()
    assert [cell.split(" ")[0] for cell in row] == ["0.300", "0.900"]
    assert all(re.search(r" \([\d.]+ to [\d.]+\)", cell) for cell in row)
    assert "20 steps on `shapes:pixels#500`, `hf::laolao77/ViRFT_COCO_base65`." in text
    assert "| `vlrft_format` | 0.5 |" in text and "--learning_rate 1e-06\n" in text
    assert "global_step4, optimizer.pt, rng_state.pth, scheduler.pt" in said
    bare, said = card_of(demo, tmp_path)
    assert ModelCard(bare).data.license is None and "--license" in said and "--base-model" in said


def test_an_adapter_names_a_model_that_others_have(tmp_path):
    demo = write_run(tmp_path / "demo", adapter="/home/me/models/start")
    assert "--base-model ORG/NAME" in refusal(demo, "--card-only", tmp_path / "card")
    opened = open_checkpoint(demo, BASE)
    assert set(opened.files) == {"adapter_config.json", "adapter_model.safetensors", "args.json"}
    assert json.loads(opened.files["args.json"])["model"] == BASE
    assert json.loads(opened.files["adapter_config.json"])["base_model_name_or_path"] == BASE
    for hub, page in {"hf": "huggingface.co", "modelscope": "modelscope.cn/models"}.items():
        text = model_card_of(demo, BASE, hub=hub)
        data = ModelCard(text).data
        assert data.library_name == "peft" and data.base_model == BASE and "lora" in data.tags
        assert f"](<https://{page}/{BASE}>)" in text


@cases("base")
def test_the_base_model_is_known_by_id_or_by_the_hubs_cache(tmp_path, case):
    names = {"model": case["model"], "model_dir": case["directory"]}
    assert (
        open_checkpoint(write_checkpoint(tmp_path / "checkpoint-1", **names)).base == case["known"]
    )


def test_what_swift_export_merged_says_what_trained_it(tmp_path):
    demo = write_run(tmp_path / "demo", adapter=BASE, model=BASE)
    merged = write_checkpoint(demo / "grpo" / "checkpoint-20-merged")
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "trainer_state.json"):
        (merged / name).unlink()
    (merged / "args.json").write_text(json.dumps({"model": BASE, "merge_lora": True}))
    text = model_card_of(merged)
    assert "20 steps" in text and "| `vlrft_format` | 0.5 |" in text


def test_of_scripts_only_the_models_own_go_up(demo):
    folder = demo / "grpo" / "checkpoint-20"
    maps = {"AutoModel": "modeling_x.X", "AutoTokenizer": ["a/b--tokenization_x.X", None]}
    (folder / "config.json").write_text(json.dumps({"auto_map": maps}))
    (folder / "modeling_x.py").write_text("import os\nfrom .visual_x import V\n")
    for name in ("visual_x", "my_reward", "zero_to_fp32", "os"):
        (folder / f"{name}.py").write_text("")
    scripts = {name for name in open_checkpoint(demo).files if name.endswith(".py")}
    assert scripts == {"modeling_x.py", "visual_x.py"}


def commands(text: str) -> list[list[str]]:
    """The words of every command in the card's blocks."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    names = ("swift ", "hf ", "modelscope ", "vlrft ")
    return [shlex.split(line) for line in lines if line.startswith(names)]


@pytest.mark.parametrize(("hub", "adapter"), [("hf", None), ("modelscope", "/home/me/start")])
def test_its_commands_are_right(tmp_path, hub, adapter):
    text = model_card_of(write_run(tmp_path, adapter=adapter, max_pixels=602112), BASE, hub=hub)
    download, infer, evaluation = commands(text)
    assert infer[:2] == ["swift", "infer"] and len(infer) % 2 == 0
    flags = dict(zip(infer[2::2], infer[3::2], strict=True))
    known = facts(may_import=False).flags("infer")
    assert {name.removeprefix("--") for name in flags} <= known.keys()
    model = {"--model": BASE, "--adapters": "shapes"} if adapter else {"--model": "shapes"}
    assert flags.items() >= {"--max_pixels": "602112", "--template": "internvl_hf", **model}.items()
    assert ("export USE_HF=1" in text) == (hub == "hf")
    assert download[-1] == "shapes" and download[0] == hub
    assert evaluation == ["vlrft", "eval", "shapes", "SET", "--task", "classification"]


# ---- what is refused ---------------------------------------------------------------------------


@cases("whole")
def test_a_checkpoint_that_is_not_whole_is_refused(demo, tmp_path, case):
    file, content = demo / "grpo" / "checkpoint-20" / case["file"], case["content"]
    whole = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(whole[:-3] if content == "cut" else content.encode())
    path = file.parent if content else demo
    assert case["said"] in refusal(path, "--card-only", tmp_path / "card")
    assert not (tmp_path / "card").exists()


def test_what_must_not_go_up_is_refused_by_name(demo):
    """All of it in one list; no secret is shown, and no file is changed."""
    folder = demo / "grpo" / "checkpoint-20"
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    config = {"_name_or_path": "/home/me/start", "nested": [{"api_key": "Zq81Zq81Zq81"}]}
    config |= {"base_path": "/start", "data_dir": "./runs", "share": r"\\srv\start\x"}
    (folder / "LICENSE").write_text("mine, hf_abcdefghijklmnopqrstuvwxyz0123")
    (folder / "generation_config.json").write_text("{}", "utf-8-sig")
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"M": "modeling_x.X"}}))
    (folder / "modeling_x.py").write_text("TOKEN = 'hf_abcdefghijklmnopqrstuvwxyz0123'")
    args = json.loads((folder / "args.json").read_text())
    (folder / "args.json").write_text(json.dumps(args | {"system": "at http://me:Zq81@host/x"}))
    before = contents(folder)
    said = refusal(demo, HF_TOKEN="x")
    for place in (
        *("pytorch_model.bin: is a pickle", "config.json: _name_or_path is the path /home/me"),
        *("config.json: nested.api_key holds a secret", "config.json: base_path is the path"),
        *("config.json: data_dir is the path ./runs", r"config.json: share is the path \\srv"),
        *("modeling_x.py: holds a secret", "LICENSE: holds a secret"),
        *("generation_config.json: is no JSON", "args.json: system holds a secret"),
    ):
        assert place in said, place
    assert "Zq81" not in said and "hf_abc" not in said and contents(folder) == before


def test_templates_prompts_and_special_tokens_are_no_secrets_and_no_paths(tmp_path):
    system = r"Answer in \boxed{}, with \frac\alpha\beta; say 'token' once. See /a/b."
    demo = write_run(tmp_path / "demo", system=system)
    template = "/a/b{% set bos_token = '/a/b' %}{{ message['tool_token'] }}"
    config = {"chat_template": template, "bos_token": "<|begin_of_text|>", "pad_token": "[PAD]"}
    config |= {"mask_token": "MASK_TOKEN_LONG", "image_token": "(<image>./</image>)"}
    config |= {"max_token": 5, "added_tokens_decoder": {"0": {"content": "</think>"}}}
    (demo / "grpo/checkpoint-20/tokenizer_config.json").write_text(json.dumps(config))
    (demo / "grpo/checkpoint-20/tokenizer.json").write_text('{"vocab": ["/home/me"]}')
    files = model_card(open_checkpoint(demo), "hf", "me/x").files
    assert json.loads(files["args.json"])["system"] == system


def test_a_folder_that_is_no_checkpoint_is_refused(demo, tmp_path):
    for folder in ("empty", "tmp-checkpoint-3"):
        (tmp_path / folder).mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("nowhere", "empty", "file", "tmp-checkpoint-3"):
        assert str(tmp_path / name) in refusal(tmp_path / name)
    assert "HF_TOKEN is" in refusal(demo, HF_TOKEN="")
    assert "--hub github" in refusal(demo, hub="github")


@cases("name")
def test_a_name_that_no_hub_has_is_refused(demo, case):
    assert f"{case['flag']} {case['value']}" in refusal(demo, case["flag"], case["value"])


def test_a_card_replaces_nothing(demo, tmp_path):
    told = json.loads(publish(demo, "--card-only", tmp_path / "new", "--json")[0])
    assert told["card"] == str(tmp_path / "new" / "README.md") and told["sent"] is False
    assert {"README.md", "model.safetensors"} <= set(told["files"])
    for place in (demo / "grpo" / "checkpoint-20", tmp_path / "new"):
        before = contents(place)
        assert "new folder" in refusal(demo, "--card-only", place)
        assert contents(place) == before


# ---- evaluations -------------------------------------------------------------------------------


def test_evaluations_of_others_are_refused(demo, tmp_path):
    data, last = demo / "data" / "held_out", demo / "grpo" / "checkpoint-20"
    (tmp_path / "other").mkdir()
    before, after = demo / "eval" / "before", demo / "eval" / "after"
    other = {
        name: write_evaluation(tmp_path / name, model, on, 5, **more)
        for name, model, on, more in (
            ("model", last.with_name("checkpoint-10"), data, {}),
            ("set", demo / "start", tmp_path / "other", {}),
            ("split", demo / "start", data, {"split": "train"}),
            ("same", last, data, {}),
        )
    }
    for first, second, said in [
        (before, other["model"], "is of the model"),
        *((other[name], after, "of another model") for name in ("set", "split", "same")),
        (before, None, "--before needs --after"),
        (before, tmp_path / "nowhere", "summary.json"),
    ]:
        flags = [f"--before={first}", *([f"--after={second}"] if second else [])]
        assert said in refusal(demo, *flags, "--card-only", tmp_path / "card")
    # Where the demo's are found, not given, the card goes without them.
    earlier = write_checkpoint(demo / "grpo" / "checkpoint-10", model=str(demo / "start"))
    text, said = card_of(earlier, tmp_path)
    assert "| accuracy |" not in text and "left out" in said
    assert "10 steps on" in text and open_checkpoint(demo).folder.name == "checkpoint-20"


def test_an_evaluation_after_alone_and_several_tasks_are_shown(demo, tmp_path):
    text, _ = card_of(demo, tmp_path, "--after", demo / "eval" / "after")
    assert re.search(r"^\| accuracy \| 0\.900 \(", text, re.M) and "| before " not in text
    for side in ("before", "after"):
        folder = demo / "eval" / side
        folder.rename(demo / "moved")
        folder.mkdir()
        shutil.copytree(demo / "moved", folder / "colours")
        (demo / "moved").rename(folder / "shapes")
    assert card_of(demo, tmp_path)[0].count("| accuracy | 0.300 ") == 2


def test_a_run_that_was_moved_is_known_by_its_name(demo, tmp_path):
    shutil.move(demo, tmp_path / "elsewhere" / "demo")
    text, _ = card_of(tmp_path / "elsewhere" / "demo", tmp_path)
    assert "| accuracy | 0.300" in text


def test_the_last_of_several_runs_is_taken_by_number(demo):
    for name in ("v9-20261122-093000", "v10-20261122-101500"):
        shutil.copytree(demo / "grpo", demo / "runs" / name)
    assert open_checkpoint(demo / "runs").folder.parent.name == "v10-20261122-101500"
