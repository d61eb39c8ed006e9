"""`vlrft publish`: what goes up, what the card says, and what is refused."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import ModelCardData
from PIL import Image
from support.finished_run import (
    tensors,
    write_checkpoint,
    write_evaluation,
    write_run,
)
from support.hub_server import TOKEN, hub_environment, running_hub
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.hub.checkpoint import open_checkpoint
from swift_vlrft.hub.model_card import model_files
from swift_vlrft.recipe.facts import facts

BASE = "Qwen/Qwen3-VL-2B-Instruct"


@pytest.fixture
def demo(tmp_path):
    return write_run(tmp_path / "runs" / "demo")


def publish(*arguments, **more):
    words = ["publish", *map(str, arguments), "--repo", "me/shapes"]
    return CliRunner().invoke(app, [*words, *([] if "--hub" in words else ["--hub", "hf"])], **more)


def card_of(demo, tmp_path, *arguments):
    out = tmp_path / "card"
    done = publish(demo, "--card-only", out, *arguments)
    assert done.exit_code == 0, done.stderr
    return (out / "README.md").read_text(), done


def said(done) -> str:
    return " ".join(done.stderr.split())


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
        *("README.md", "assets/rewards.png", "config.json", "generation_config.json"),
        *("model.safetensors", "tokenizer.json", "tokenizer_config.json", "args.json"),
        "preprocessor_config.json",
    }
    assert repo.files["model.safetensors"] == tensors()
    assert json.loads(repo.files["tokenizer_config.json"]) == {"bos_token": "<s>"}
    kept = {"swift_version", "tuner_type", "model_type", "template", "system"}
    assert json.loads(repo.files["args.json"]).keys() == kept
    told = b"\n".join(repo.files.values()) + (done.stdout + done.stderr).encode()
    for text in (TOKEN, "/home/me", "/data/of", "hf_abc", "swan-lab", "hooks.example", "key-of-mi"):
        assert text.encode() not in told, text
    for content in repo.files.values():
        assert str(tmp_path).encode() not in content


def test_the_card_says_what_ran(demo, tmp_path):
    text, done = card_of(demo, tmp_path, "--license", "Apache License 2.0")
    card = ModelCard(text)
    data = card.data
    assert isinstance(data, ModelCardData)
    assert data.license == "apache-2.0" and data.library_name == "transformers"
    assert data.pipeline_tag == "image-text-to-text" and data.datasets == [
        "laolao77/ViRFT_COCO_base65"
    ]
    (result,) = data.eval_results  # read by the library's own reader of model-index
    assert result.metric_type == "accuracy" and result.metric_value == 0.9
    row = re.search(r"^\| accuracy \| (.*) \| (.*) \| (.*) \|$", text, re.M).groups()
    assert [cell.split(" ")[0] for cell in row] == ["0.300", "0.900", "+0.600"]
    assert all(re.search(r"\([+\d.-]+ to [+\d.-]+\)", cell) for cell in row)
    assert "20 steps on `shapes:pixels#500`, `hf::laolao77/ViRFT_COCO_base65`." in text
    assert "| `vlrft_format` | 0.5 |" in text and "ms-swift 4.6.0" in text
    assert "--learning_rate 1e-06" in text and "transformers 5.19.0" in text
    assert re.search(
        r"^\| `vlrft_classification` \| 1 \| .* \| 0.025 \| 0.925 \|$", text, re.M
    )  # of 20 steps the first and last 2
    picture = Image.open(tmp_path / "card" / "assets" / "rewards.png")
    picture.load()
    assert picture.width > 300
    assert "not published: optimizer.pt, rng_state.pth, scheduler.pt, tra" in said(done)
    assert "not published: global_step4/" in said(done)


def test_no_secret_no_path_and_no_markup_in_it(demo, tmp_path):
    text, _ = card_of(demo, tmp_path)
    for found in ("/home/me", "/data/of", str(tmp_path), "hf_abc", "swan", "hooks.", "key-of-mine"):
        assert found not in text, found
    assert not re.search("token", text.replace("tokens", "").split("## Training")[1], re.I)
    outside = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.M | re.S)
    assert "<img" not in outside.replace("![", "")


def files_of(demo, hub="hf") -> dict[str, bytes]:
    """Everything that would go up, as bytes."""
    files = model_files(open_checkpoint(demo, BASE), hub, "me/shapes").files
    return {n: one if isinstance(one, bytes) else one.read_bytes() for n, one in files.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm_engine_kwargs", '{"api_key": "SECRET"}'),
        ("model_kwargs", '{"hf_token": "SECRET", "place": "/home/me/x"}'),
        ("teacher_model_server", "http://me:SECRET@host:8000/v1?access_token=SECRET"),
        ("num_generations", "8 --hub_token SECRET"),
        ("model_kwargs", "WANDB_API_KEY=SECRET"),
        ("system", "Bearer github_pat_11ABCDEFG0123456789abcdefSECRET"),
        ("reward_funcs", ["/home/me/rewards/mine", "vlrft_format"]),
        ("swift_version", {"from": "/home/me/ms-swift"}),
        ("dataset", ["host:/home/me/x.jsonl", "C:\\home/me\\SECRET\\set.jsonl"]),
    ],
)
def test_neither_does_a_text_that_holds_one(tmp_path, name, value):
    for file, content in files_of(write_run(tmp_path / "demo", **{name: value})).items():
        assert b"SECRET" not in content and b"/home/me" not in content, (file, content)


def test_templates_and_prompts_go_up_letter_by_letter(tmp_path):
    """A path is taken out of a setting; a backslash in a template or in LaTeX is none."""
    system = r"Answer in \boxed{}, with \frac\alpha\beta, or \n\n; say 'token' once."
    demo = write_run(tmp_path / "demo", system=system)
    template = r"{{- messages[0].content + '\n\n' }}{% set bos_token = '/a/b' %}"
    config = {"chat_template": template, "pat": r"\s\d+", "name_or_path": "/home/me/start"}
    written = [config, {**config, "chat_template": [{"name": "tools", "template": template}]}]
    for one in written:
        (demo / "grpo/checkpoint-20/tokenizer_config.json").write_text(json.dumps(one))
        files = files_of(demo)
        assert json.loads(files["tokenizer_config.json"]) == one | {"name_or_path": "start"}
        assert json.loads(files["args.json"])["system"] == system


def test_of_scripts_only_the_models_own_go_up(demo):
    folder = demo / "grpo" / "checkpoint-20"
    config = json.loads((folder / "config.json").read_text())
    maps = {"AutoModel": "modeling_x.X", "AutoTokenizer": ["a/b--tokenization_x.X", None]}
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": maps}))
    (folder / "modeling_x.py").write_text("import os\nfrom .visual_x import V\n")
    for name in ("visual_x", "my_reward", "zero_to_fp32", "os"):
        (folder / f"{name}.py").write_text("from .modeling_x import X")
    found = {name for name in files_of(demo) if name.endswith(".py")}
    assert found == {"modeling_x.py", "visual_x.py"}


def test_a_run_that_paid_no_reward_of_ours_is_not_said_to(tmp_path):
    demo = write_run(tmp_path / "demo", reward_funcs=["accuracy"])
    assert b"visual rewards" not in files_of(demo)["README.md"]
    for file in demo.glob("grpo/**/args.json"):
        args = json.loads(file.read_text())
        del args["rlhf_type"], args["reward_funcs"]
        file.write_text(json.dumps(args))
    card = files_of(demo)["README.md"].decode()
    assert "supervised fine-tuning" in card and "grpo" not in card.lower().split("## use")[0]
    assert "The arguments of `swift sft`" in card


def test_what_swift_export_merged_says_what_trained_it(tmp_path):
    demo = write_run(tmp_path / "demo", adapter=BASE, model=BASE)
    merged = write_checkpoint(demo / "grpo" / "checkpoint-20-merged")
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "trainer_state.json"):
        (merged / name).unlink()
    (merged / "args.json").write_text(json.dumps({"model": BASE, "merge_lora": True}))
    card = files_of(merged)["README.md"].decode()
    assert "20 steps" in card and "| `vlrft_format` | 0.5 |" in card


def test_the_heads_of_both_hubs(demo, tmp_path):
    opened = open_checkpoint(demo, BASE)
    heads = {}
    for hub in ("hf", "modelscope"):
        text = model_files(opened, hub, "me/shapes").files["README.md"].decode()
        heads[hub] = yaml.safe_load(text.split("---\n")[1])
        page = {"hf": "huggingface.co", "modelscope": "modelscope.cn/models"}[hub]
        assert f"](<https://{page}/{BASE}>)" in text
    assert all(head["base_model"] == BASE for head in heads.values())
    assert heads["modelscope"]["base_model_relation"] == "finetune"
    assert heads["modelscope"]["frameworks"] == ["pytorch"] and heads["modelscope"]["tasks"]
    assert "model-index" in heads["hf"] and "model-index" not in heads["modelscope"]


def test_an_adapter_names_a_model_that_others_have(tmp_path):
    demo = write_run(tmp_path / "demo", adapter="/home/me/models/start")
    done = publish(demo, "--card-only", tmp_path / "card")
    assert done.exit_code == 2 and "--base-model ORG/NAME" in said(done)
    opened = open_checkpoint(demo, BASE)
    assert set(opened.files) == {*("adapter_config.json", "adapter_model.safetensors", "args.json")}
    assert json.loads(opened.files["args.json"])["model"] == BASE
    assert json.loads(opened.files["adapter_config.json"])["base_model_name_or_path"] == BASE
    text = model_files(opened, "hf", "me/shapes").files["README.md"].decode()
    data = ModelCard(text).data
    assert data.library_name == "peft" and data.base_model == BASE and "lora" in data.tags
    assert f"--model {BASE} --adapters shapes" in text and "peft 0.20.0" in text


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


def test_the_licence_of_a_base_model_that_lies_here_is_taken(demo, tmp_path):
    (demo / "start" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    text, done = card_of(demo, tmp_path)
    assert ModelCard(text).data.license == "cc-by-nc-4.0" and "no licence" not in said(done)


def test_nobody_s_licence_is_said(demo, tmp_path):
    text, done = card_of(demo, tmp_path)
    assert ModelCard(text).data.license is None
    assert "Nobody has stated a licence" in text and "state the base model's" in said(done)


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
    text = model_files(open_checkpoint(demo, BASE), hub, "me/shapes").files["README.md"].decode()
    download, infer, evaluation = commands(text)
    assert infer[:2] == ["swift", "infer"] and len(infer) % 2 == 0
    flags = dict(zip(infer[2::2], infer[3::2], strict=True))
    known = facts(may_import=False).flags("infer")
    assert {name.removeprefix("--") for name in flags} <= known.keys()
    model = {"--model": BASE, "--adapters": "shapes"} if adapter else {"--model": "shapes"}
    assert flags.items() >= {"--max_pixels": "602112", "--template": "internvl_hf", **model}.items()
    assert ("export USE_HF=1" in text) == (hub == "hf")
    assert "--system" not in flags  # a prompt may be long: swift infer reads it from args.json
    assert download[-1] == "shapes" and download[0] == hub
    assert evaluation == ["vlrft", "eval", "shapes", "SET", "--task", "classification"]


# ---- what is refused ---------------------------------------------------------------------------


def without(name):
    return lambda run: (run / "grpo" / "checkpoint-20" / name).unlink()


def cut(name, by=3):
    def act(run):
        file = run / "grpo" / "checkpoint-20" / name
        file.write_bytes(file.read_bytes()[:-by])

    return act


def put(name, content):
    def act(run):
        (run / "grpo" / "checkpoint-20" / name).write_bytes(content)

    return act


def pickled(run):
    folder = run / "grpo" / "checkpoint-20"
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_args(run):
    for file in run.glob("grpo/**/args.json"):
        file.unlink()


INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}).encode()
BROKEN = [
    (without("config.json"), "has no config.json"),
    (without("tokenizer_config.json"), "has no tokenizer_config.json"),
    (without("model.safetensors"), "holds no weights (*.safetensors)"),
    (without("trainer_state.json"), "no trainer_state.json, which is written last"),
    (cut("model.safetensors"), "still being written, or cut off"),
    (cut("model.safetensors", 70), "no complete safetensors file"),
    (put("model.safetensors", b""), "no complete safetensors file (0 bytes)"),
    (put("model.safetensors", b"\xff" * 64), "no complete safetensors file"),
    (put("model.safetensors", b"\x08" + bytes(7) + b"not json" * 9), "header that cannot be read"),
    (put("model.safetensors.index.json", INDEX), "lacks model-00001-of-00002.safetensors"),
    (put("config.json", b"{"), "is not JSON"),
    (put("config.json", b"[]"), "is no JSON object"),
    (pickled, "pickles (pytorch_model.bin)"),
    (no_args, "has no args.json"),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN, ids=[text for _, text in BROKEN])
def test_a_checkpoint_that_is_not_whole_is_refused(demo, tmp_path, spoil, message):
    spoil(demo)
    for given in (demo, demo / "grpo" / "checkpoint-20"):
        if given.name == "demo" or (given / "config.json").exists():
            done = publish(given, "--card-only", tmp_path / "card")
            assert done.exit_code == 2 and message in said(done), said(done)
            assert "Traceback" not in done.output and not (tmp_path / "card").exists()


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
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


@pytest.mark.parametrize(
    ("repo", "hub", "message"),
    [
        ("shapes", "hf", "expected ORG/NAME"),
        ("me/", "hf", "expected ORG/NAME"),
        ("a/b/c", "hf", "expected ORG/NAME"),
        ("me/sh apes", "hf", "expected ORG/NAME"),
        ("me/../x", "hf", "expected ORG/NAME"),
        ("me/a--b", "ms", "expected ORG/NAME"),
        ("me/.git", "ms", "expected ORG/NAME"),
        ("me/" + "x" * 100, "hf", "expected ORG/NAME"),
        ("me/x", "github", "unknown; known: hf, modelscope, ms"),
    ],
)
def test_a_name_that_is_none_is_refused(demo, repo, hub, message):
    done = CliRunner().invoke(app, ["publish", str(demo), "--hub", hub, "--repo", repo])
    assert done.exit_code == 2 and message in said(done), said(done)


@pytest.mark.parametrize(
    "name", ["/models/qwen", "qwen", "a b/c", "Qwen/../x", "https://hf.co/a/b"]
)
def test_a_base_model_is_an_id(demo, name):
    done = publish(demo, "--base-model", name)
    assert done.exit_code == 2 and "--base-model" in said(done) and "ORG/NAME" in said(done)


def test_the_token_is_asked_for(demo):
    done = publish(demo, env={"HF_TOKEN": ""})
    assert done.exit_code == 2 and "HF_TOKEN is not set" in said(done)


def test_a_card_replaces_nothing_but_a_card(demo, tmp_path):
    folder, other = demo / "grpo" / "checkpoint-20", write_checkpoint(tmp_path / "other")
    for place in (folder, other, demo / "grpo"):
        before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
        done = publish(demo, "--card-only", place)
        assert done.exit_code == 2 and "name a new folder" in said(done)
        assert {file: file.read_bytes() for file in place.rglob("*") if file.is_file()} == before
    for _ in range(2):  # an earlier card is
        assert publish(demo, "--card-only", tmp_path / "card").exit_code == 0


def test_a_readme_of_others_is_not_written_over(demo, tmp_path):
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "README.md").write_text("# mine")
    done = publish(demo, "--card-only", tmp_path / "card")
    assert done.exit_code == 2 and "name a new folder" in said(done)
    assert (tmp_path / "card" / "README.md").read_text() == "# mine"


# ---- evaluations -------------------------------------------------------------------------------


def test_evaluations_of_others_are_refused(demo, tmp_path):
    data, other = demo / "data" / "held_out", tmp_path / "other"
    other.mkdir()
    last = demo / "grpo" / "checkpoint-20"
    made = {
        "other model": (last.with_name("checkpoint-10"), data, {}),
        "other start": ("Qwen/Qwen2-VL-2B", data, {}),
        "other set": (demo / "start", other, {}),
        "other split": (demo / "start", data, {"split": "train"}),
        "same model": (last, data, {}),
    }
    path = {
        name: write_evaluation(tmp_path / name, model, on, 5, **more)
        for name, (model, on, more) in made.items()
    }
    before, after = demo / "eval" / "before", demo / "eval" / "after"
    (tmp_path / "no run").mkdir()
    for first, second, message in [
        (before, path["other model"], "is of the model"),
        (path["other start"], after, "but the training started from"),
        (path["other set"], after, "are of different sets: dataset"),
        (path["other split"], after, "are of different sets: split"),
        (path["same model"], after, "that is after"),
        (before, None, "--before without --after"),
        (before, tmp_path / "nowhere", "--after"),
        (tmp_path / "no run", after, "is no folder of `vlrft eval`"),
        (after, before, "is of the model"),
    ]:
        flags = [f"--before={first}", *([f"--after={second}"] if second else [])]
        done = publish(demo, *flags, "--card-only", tmp_path / "card")
        assert done.exit_code == 2 and message in said(done), (message, said(done))


def test_weights_that_changed_since_the_evaluation_are_refused(demo, tmp_path):
    (demo / "grpo" / "checkpoint-20" / "model.safetensors").write_bytes(tensors(9))
    after = demo / "eval" / "after"
    done = publish(demo, "--after", after, "--card-only", tmp_path / "card")
    assert done.exit_code == 2 and "have changed since" in said(done)
    # Where the demo's are found, not given, the card goes without them.
    text, done = card_of(demo, tmp_path)
    assert "It has not been evaluated" in text and "are left out" in said(done)


def test_an_evaluation_after_alone_is_shown(demo, tmp_path):
    text, _ = card_of(demo, tmp_path, "--after", demo / "eval" / "after")
    assert re.search(r"^\| accuracy \| 0\.900 \(", text, re.M) and "| before |" not in text


def test_several_tasks_are_shown_each(demo, tmp_path):
    for side in ("before", "after"):
        folder = demo / "eval" / side
        folder.rename(demo / "moved")
        folder.mkdir()
        shutil.copytree(demo / "moved", folder / "colours")
        (demo / "moved").rename(folder / "shapes")
    text, _ = card_of(demo, tmp_path)
    assert text.count("| accuracy |") == 2


def test_a_run_that_was_moved_is_known_by_its_name(demo, tmp_path):
    shutil.copytree(demo, tmp_path / "elsewhere" / "demo")
    shutil.rmtree(demo)
    text, _ = card_of(tmp_path / "elsewhere" / "demo", tmp_path)
    assert "| accuracy | 0.300" in text


def test_of_a_checkpoint_before_the_end_only_its_steps_are_shown(demo, tmp_path):
    earlier = write_checkpoint(demo / "grpo" / "checkpoint-10", model=str(demo / "start"))
    text, _ = card_of(earlier, tmp_path)
    assert "10 steps of a run of 20" in text and "| 0 | 0.45 |" in text
    assert open_checkpoint(demo).folder.name == "checkpoint-20"


def test_the_last_of_several_runs_is_taken_by_number(demo):
    for name in ("v9-20261122-093000", "v10-20261122-101500"):
        shutil.copytree(demo / "grpo", demo / "runs" / name)
    (demo / "runs" / "v10-20261122-101500" / "checkpoint-20" / "latest").symlink_to("nowhere")
    assert open_checkpoint(demo / "runs").folder.parent.name == "v10-20261122-101500"


def test_rewards_of_any_name_and_size_are_drawn(demo, tmp_path, recwarn):
    import numpy as np

    names = {"$x_{": -1.0, "奖励": 3.0, "a/b": 0.5}
    row = {f"rewards/{name}/mean": value for name, value in names.items()}
    lines = [json.dumps(row | {"global_step/max_steps": f"{n + 1}/20"}) for n in range(20)]
    (demo / "grpo" / "logging.jsonl").write_text("\n".join(lines))
    card_of(demo, tmp_path)
    assert not [one for one in recwarn if "Glyph" in str(one.message)]
    pixels = np.asarray(Image.open(tmp_path / "card/assets/rewards.png").convert("RGB"), int)
    for colour in ((31, 119, 180), (255, 127, 14), (44, 160, 44)):  # matplotlib's first three
        close = abs(pixels[:, : pixels.shape[1] // 2] - colour).sum(2) < 30
        assert close.sum() > 20, colour
