"""`vlrft publish`: what goes up, what the card says, and what is refused."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from huggingface_hub import ModelCard
from support.finished_run import tensors, write_checkpoint, write_evaluation, write_run
from support.hub_server import TOKEN, hub_environment, running_hub
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.hub.cards import model_card
from swift_vlrft.hub.checkpoint import open_checkpoint
from swift_vlrft.recipe.facts import facts

BASE = "Qwen/Qwen3-VL-2B-Instruct"


@pytest.fixture
def demo(tmp_path):
    return write_run(tmp_path / "runs" / "demo")


def publish(*arguments, hub="hf", repo="me/shapes", **more):
    words = ["publish", *map(str, arguments), "--repo", repo, "--hub", hub]
    return CliRunner().invoke(app, words, **more)


def said(done) -> str:
    return " ".join(done.stderr.split())


def card_of(demo, tmp_path, *arguments):
    done = publish(demo, "--card-only", tmp_path / "card", *arguments)
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "card" / "README.md").read_text()
    shutil.rmtree(tmp_path / "card")
    return text, done


@pytest.mark.slow
@pytest.mark.parametrize(("name", "page"), [("hf", "me/shapes"), ("ms", "models/me/shapes")])
def test_what_belongs_arrives_and_nothing_else(demo, tmp_path, name, page):
    with running_hub() as hub:
        env = {**os.environ, **hub_environment(hub.url, tmp_path)}
        code = "from swift_vlrft.cli import app; app()"
        words = ["publish", str(demo), "--hub", name, "--to", "me/shapes", "--json", "--private"]
        done = subprocess.run(
            [sys.executable, "-c", code, *words], env=env, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["page"] == f"{hub.url}/{page}"
    repo = hub.repos["me/shapes"]
    assert repo.private and set(repo.files) == {
        *("README.md", "config.json", "generation_config.json", "preprocessor_config.json"),
        *("model.safetensors", "tokenizer.json", "tokenizer_config.json", "args.json"),
    }
    assert repo.files["model.safetensors"] == tensors()
    kept = {"swift_version", "tuner_type", "model_type", "template", "system"}
    assert json.loads(repo.files["args.json"]).keys() == kept
    told = b"\n".join(repo.files.values()) + (done.stdout + done.stderr).encode()
    for text in (TOKEN, "/home/me/runs", "/data/of", "hf_abc", "swan-lab", "hooks.", "key-of-mi"):
        assert text.encode() not in told, text
    assert not any(str(tmp_path).encode() in content for content in repo.files.values())
    assert repo.licence == ("other" if name == "ms" else None)  # never one that nobody stated


def test_the_card_says_what_ran_and_what_came_of_it(demo, tmp_path):
    text, done = card_of(demo, tmp_path, "--license", "apache-2.0")
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
    assert "not published: global_step4, optimizer.pt, rng_state.pth, scheduler.pt" in said(done)
    bare, done = card_of(demo, tmp_path)
    assert ModelCard(bare).data.license is None and "Nobody has stated a licence" in bare
    assert "state it with --license" in said(done) and "--base-model" in said(done)


def test_an_adapter_names_a_model_that_others_have(tmp_path):
    demo = write_run(tmp_path / "demo", adapter="/home/me/models/start")
    done = publish(demo, "--card-only", tmp_path / "card")
    assert done.exit_code == 2 and "--base-model ORG/NAME" in said(done)
    opened = open_checkpoint(demo, BASE)
    assert set(opened.files) == {"adapter_config.json", "adapter_model.safetensors", "args.json"}
    assert json.loads(opened.files["args.json"])["model"] == BASE
    assert json.loads(opened.files["adapter_config.json"])["base_model_name_or_path"] == BASE
    for hub, page in {"hf": "huggingface.co", "modelscope": "modelscope.cn/models"}.items():
        text = model_card(opened, hub, "me/shapes").files["README.md"].decode()
        data = ModelCard(text).data
        assert data.library_name == "peft" and data.base_model == BASE and "lora" in data.tags
        assert f"](<https://{page}/{BASE}>)" in text


@pytest.mark.parametrize(
    ("model", "directory", "known"),
    [
        ("Qwen/Qwen3-VL-2B-Instruct", None, "Qwen/Qwen3-VL-2B-Instruct"),
        ("Qwen/X", "/data/modelscope/hub/models/Qwen/X", "Qwen/X"),
        ("/c/modelscope/hub/models/Qwen/Qwen2___5-VL-3B", None, "Qwen/Qwen2.5-VL-3B"),
        ("/c/hub/models--Qwen--Qwen3-VL-2B/snapshots/0a1", None, "Qwen/Qwen3-VL-2B"),
        ("runs/start", "/home/me/runs/start", None),
        ("/home/me/start", "/home/me/start", None),
        ("a/b/c", None, None),
    ],
)
def test_the_base_model_is_known_by_id_or_by_the_hubs_cache(tmp_path, model, directory, known):
    folder = write_checkpoint(tmp_path / "checkpoint-1", model=model, model_dir=directory)
    assert open_checkpoint(folder).base == known


def test_what_swift_export_merged_says_what_trained_it(tmp_path):
    demo = write_run(tmp_path / "demo", adapter=BASE, model=BASE)
    merged = write_checkpoint(demo / "grpo" / "checkpoint-20-merged")
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "trainer_state.json"):
        (merged / name).unlink()
    (merged / "args.json").write_text(json.dumps({"model": BASE, "merge_lora": True}))
    text = model_card(open_checkpoint(merged), "hf", "me/x").files["README.md"].decode()
    assert "20 steps" in text and "| `vlrft_format` | 0.5 |" in text


def test_of_scripts_only_the_models_own_go_up(demo):
    folder = demo / "grpo" / "checkpoint-20"
    maps = {"AutoModel": "modeling_x.X", "AutoTokenizer": ["a/b--tokenization_x.X", None]}
    (folder / "config.json").write_text(json.dumps({"auto_map": maps}))
    (folder / "modeling_x.py").write_text("import os\nfrom .visual_x import V\n")
    for name in ("visual_x", "my_reward", "zero_to_fp32", "os"):
        (folder / f"{name}.py").write_text("")
    found = {name for name in open_checkpoint(demo).files if name.endswith(".py")}
    assert found == {"modeling_x.py", "visual_x.py"}


def commands(text: str) -> list[list[str]]:
    """The words of every command in the card's blocks, as bash reads them."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    said = "() { [[ ${1-} == plugin ]] && echo plugin.py && return; "
    said += "printf '%s\\0' \"${FUNCNAME[0]}\" \"$@\"; printf '\\1'; }\n"
    stubs = "".join(f"{name}{said}" for name in ("swift", "hf", "modelscope", "vlrft"))
    script = stubs + "\n".join(blocks)
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    return [one.split("\0")[:-1] for one in done.stdout.split("\1") if one]


@pytest.mark.parametrize("hub", ["hf", "modelscope"])
@pytest.mark.parametrize("adapter", [None, "/home/me/start"])
def test_its_commands_are_right(tmp_path, hub, adapter):
    demo = write_run(tmp_path / "demo", adapter=adapter, max_pixels=602112)
    text = model_card(open_checkpoint(demo, BASE), hub, "me/shapes").files["README.md"].decode()
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


def spoil(folder, name, content):
    """Write, cut off (a number) or remove (None) a file of the checkpoint."""
    file = folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:content] if isinstance(content, int) else content)


INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}).encode()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "config.json is missing"),
        ("tokenizer_config.json", None, "has no tokenizer_config.json"),
        ("model.safetensors", None, "there are no weights"),
        ("trainer_state.json", None, "no trainer_state.json, which is written last"),
        ("model.safetensors", -3, "is it still being written, or was it cut off?"),
        ("model.safetensors", b"", "no complete safetensors file (0 bytes)"),
        ("model.safetensors.index.json", INDEX, "model-00001-of-00002.safetensors, named in"),
        ("config.json", b"{", "config.json is no complete JSON file"),
        ("args.json", b"[]", "is no JSON object"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(demo, tmp_path, name, content, message):
    folder = demo / "grpo" / "checkpoint-20"
    spoil(folder, name, content)
    done = publish(folder if content else demo, "--card-only", tmp_path / "card")
    assert done.exit_code == 2 and message in said(done), said(done)
    assert not (tmp_path / "card").exists()


def test_what_must_not_go_up_is_refused_by_name(demo, tmp_path):
    """All of it in one list, each with what to do; no secret is shown, and no file is changed."""
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
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    done = publish(demo, env={"HF_TOKEN": "x"})
    assert done.exit_code == 2 and "holds what must not go up" in said(done)
    for text in (
        "pytorch_model.bin: is a pickle, which can run code where it is loaded; write safetensors",
        "config.json: _name_or_path is the path /home/me/start; write an id on a hub there",
        "config.json: nested.api_key holds a secret; remove it",
        "config.json: base_path is the path /start; write an id",
        "config.json: data_dir is the path ./runs; write an id",
        r"config.json: share is the path \\srv\start\x; write an id",
        "modeling_x.py: holds a secret; remove it",
        "LICENSE: holds a secret; remove it",
        "generation_config.json: is no JSON (Unexpected UTF-8 BOM",
        "args.json: system holds a secret; remove it",
    ):
        assert text in said(done), text
    assert "Zq81" not in done.output and "hf_abc" not in done.output
    assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before


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
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "tmp-checkpoint-3").mkdir()
    for name, message in {
        "nowhere": "does not exist",
        "empty": "holds no model",
        "file": "is a file",
        "tmp-checkpoint-3": "still being written",
    }.items():
        done = publish(tmp_path / name)
        assert done.exit_code == 2 and message in said(done)
    done = publish(demo, env={"HF_TOKEN": ""})
    assert done.exit_code == 2 and "HF_TOKEN is not set" in said(done)


@pytest.mark.parametrize("name", ["/models/qwen", "qwen", "a b/c", "Qwen/../x", "https://hf.co/a"])
def test_a_base_model_is_an_id(demo, name):
    done = publish(demo, "--base-model", name)
    assert done.exit_code == 2 and "--base-model" in said(done) and "ORG/NAME" in said(done)


@pytest.mark.parametrize("repo", ["shapes", "me/", "a/b/c", "me/sh apes", "me/../x", "me/a--b"])
def test_a_name_that_is_none_is_refused(demo, repo):
    done = publish(demo, repo=repo)
    assert done.exit_code == 2 and "expected ORG/NAME" in said(done)
    done = publish(demo, hub="github")
    assert done.exit_code == 2 and "unknown; known: hf, modelscope, ms" in said(done)


def test_a_card_replaces_nothing(demo, tmp_path):
    folder, card = demo / "grpo" / "checkpoint-20", tmp_path / "card"
    card.mkdir()
    (card / "README.md").write_text("# mine")
    done = publish(demo, "--card-only", tmp_path / "new", "--json")
    told = json.loads(done.stdout)
    assert told["card"] == str(tmp_path / "new" / "README.md") and told["sent"] is False
    assert {"README.md", "model.safetensors"} <= set(told["files"])
    for place in (folder, card):
        before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
        done = publish(demo, "--card-only", place)
        assert done.exit_code == 2 and "name a new folder" in said(done)
        assert {file: file.read_bytes() for file in place.rglob("*") if file.is_file()} == before


# ---- evaluations -------------------------------------------------------------------------------


def test_evaluations_of_others_are_refused(demo, tmp_path):
    data, other = demo / "data" / "held_out", tmp_path / "other"
    other.mkdir()
    last = demo / "grpo" / "checkpoint-20"
    made = {
        "other model": (last.with_name("checkpoint-10"), data, {}),
        "other set": (demo / "start", other, {}),
        "other split": (demo / "start", data, {"split": "train"}),
        "same model": (last, data, {}),
    }
    path = {
        name: write_evaluation(tmp_path / name, model, on, 5, **more)
        for name, (model, on, more) in made.items()
    }
    before, after = demo / "eval" / "before", demo / "eval" / "after"
    others = "holds no evaluation of another model on the rows of --after"
    for first, second, message in [
        (before, path["other model"], "is of the model"),
        (path["other set"], after, others),
        (path["other split"], after, others),
        (path["same model"], after, others),
        (before, None, "--before without --after"),
        (before, tmp_path / "nowhere", "holds no summary.json"),
    ]:
        flags = [f"--before={first}", *([f"--after={second}"] if second else [])]
        done = publish(demo, *flags, "--card-only", tmp_path / "card")
        assert done.exit_code == 2 and message in said(done), (message, said(done))
    # Where the demo's are found, not given, the card goes without them.
    earlier = write_checkpoint(demo / "grpo" / "checkpoint-10", model=str(demo / "start"))
    text, done = card_of(earlier, tmp_path)
    assert "It has not been evaluated" in text and "are left out" in said(done)
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
