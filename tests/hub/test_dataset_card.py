"""The card that `vlrft data push` writes: read by the hub's own library, its commands checked."""

import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard
from huggingface_hub.repocard_data import DatasetCardData
from PIL import Image
from support.written_sets import png
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets.card import MARK, MARK_END
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.licence import KNOWN, licence_data, stated_licence
from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.hub.dataset_card import dataset_files
from swift_vlrft.hub.push import staged
from swift_vlrft.hub.set_facts import read_facts
from swift_vlrft.rewards import REWARDS, TASK_NAMES

GOLD = {
    "detection": "[{'Position': [100, 100, 500, 500], 'Confidence': 1}]",
    "grounding": "[100, 100, 500, 500]",
    "pointing": "[100, 100, 500, 500]",
    "choice": "B",
    "yes_no": "yes",
    "counting": "4",
    "number": "3.5",
    "list": '["red", "blue"]',
    "ordering": '["red", "blue"]',
}


def row(task: str, i: int = 0, **more) -> dict:
    has_boxes = TASK_NAMES[task].gold_has_boxes
    return {
        "image": {"bytes": png((i % 256, 90, 90), (64, 48)), "path": f"{i}.png"},
        "problem": f"Question {i}? Numbers from 0 to 1000.",
        "solution": f"<answer>{GOLD.get(task, 'rose')}</answer>",
        "task": task,
        "frame": "norm1000" if has_boxes else None,
        **more,
    }


def written(folder: Path, *rows: dict, **splits) -> Path:
    write_folder(folder, {"train": rows, **splits} if rows else splits)
    return folder


def card_of(folder, hub="hf", repo="me/shapes", licence=None) -> str:
    return dataset_files(folder, hub, repo, licence).files["README.md"].decode()


def recipe_of(text: str) -> str:
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    return next(block for block in blocks if "swift rlhf" in block)


@pytest.mark.parametrize("hub", ["hf", "modelscope"])
@pytest.mark.parametrize("tasks", [*([task] for task in TASK_NAMES), list(TASK_NAMES)], ids=str)
def test_the_command_is_right_for_every_task(tmp_path, tasks, hub):
    folder = written(tmp_path / "set", *(row(task) for task in tasks))
    text = card_of(folder, hub)
    recipe = tmp_path / "train.sh"
    recipe.write_text(recipe_of(text))
    done = CliRunner().invoke(app, ["check", "--fast", "--json", str(recipe)])
    assert done.exit_code == 0 and json.loads(done.stdout)["findings"] == []
    # Every task's rows are scored by a reward of the command.
    named = re.search(r"--reward_funcs (.*?) \\", recipe.read_text())[1].split()
    scored = {REWARDS[name].task.name for name in named if REWARDS[name].task}
    assert scored >= set(tasks) and any(REWARDS[name].scores_format for name in named)
    # The same command on the folder itself: rows, rewards and columns fit each other.
    recipe.write_text(recipe.read_text().replace("--dataset me/shapes", f"--dataset {folder}"))
    done = CliRunner().invoke(app, ["check", "--fast", "--json", str(recipe)])
    assert json.loads(done.stdout)["findings"] == []


def test_the_head_is_valid_for_both(tmp_path):
    rows = [row("detection", i) for i in range(30)]
    folder = written(tmp_path / "set", *rows, test=[row("counting")])
    for hub in ("hf", "modelscope"):
        text = card_of(folder, hub, licence="Apache License 2.0")
        data = DatasetCard(text).data  # the library's reader; it raises on what it cannot read
        assert isinstance(data, DatasetCardData)
        assert data.license == "apache-2.0" and data.size_categories == ["n<1K"]
        assert data.task_categories == ["object-detection", "visual-question-answering"]
        assert {"virft", "grpo"} <= set(data.tags)
        (config,) = data.configs
        assert [one["split"] for one in config["data_files"]] == ["train", "test"]
        assert {"name": "image", "dtype": "image"} in data.dataset_info["features"]
    head = yaml.safe_load(text.split("---\n")[1])
    assert "object-detection" in head["image"]  # ModelScope's own: a field, and a task of it


def test_it_says_what_is_in_the_set(tmp_path):
    rows = [row("detection", i) for i in range(5)] + [row("classification", i) for i in range(3)]
    folder = written(tmp_path / "set", *rows, test=[row("classification")])
    text = card_of(folder)
    assert "\n9 rows for visual" in text and "| train | detection | 5 |" in text
    assert "| train | classification | 3 |" in text and "| test | classification | 1 |" in text
    assert "thousandths of the image's width" in text
    for column in ("image", "problem", "solution", "task", "frame"):
        assert f"| `{column}` |" in text


def test_the_head_is_of_the_shards_as_they_are(tmp_path):
    """`datasets` reads what the card's head says, and checks the number of rows."""
    from datasets import load_dataset

    folder = written(tmp_path / "set", *(row("counting", i) for i in range(5)))
    (shard,) = folder.glob("data/*.parquet")
    pq.write_table(pq.read_table(shard).slice(0, 2), shard)  # its owner left rows out
    shard.rename(shard.with_name("mine.parquet"))
    files = dataset_files(folder, "hf", "me/x").files
    with staged(files) as repository:
        loaded = load_dataset(str(repository), cache_dir=str(tmp_path / "cache"))
    assert {name: len(one) for name, one in loaded.items()} == {"train": 2}
    assert loaded["train"][0]["image"].size == (64, 48)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("norm1000", "thousandths of the image's width"),
        ("pixels", "pixels of the image as it is stored"),
        ("unit", "shares of the image's width"),
        ("yx1000", "under `box_2d` as `[y1, x1, y2, x2]`"),
    ],
)
def test_the_box_format_is_said_in_words(tmp_path, frame, words):
    folder = written(tmp_path / "set", row("grounding", frame=frame))
    assert words in " ".join(card_of(folder).split())


def test_the_picture_shows_the_boxes(tmp_path):
    folder = written(tmp_path / "set", *(row("grounding", i) for i in range(20)))
    picture = Image.open(io.BytesIO(dataset_files(folder, "hf", "me/x").files["assets/rows.jpg"]))
    picture.load()
    assert picture.format == "JPEG" and picture.width > 1000
    # 4 columns of 336; the image is 64 x 48, the box from a tenth to half of it.
    shade = picture.convert("L")
    left, top = round(0.1 * 336), round(0.1 * 252)
    edge = [shade.getpixel((left + d, 70)) for d in range(-3, 4)]
    assert max(edge) > 200 and shade.getpixel((left + 60, top + 40)) < 150


def test_rows_of_every_task_are_in_the_picture(tmp_path):
    rows = [row("counting", i) for i in range(200)] + [row("grounding", i) for i in range(3)]
    places = read_facts(written(tmp_path / "set", *rows)).places
    numbers = sorted(number for _, number in places)
    assert len(numbers) == 7 and numbers[-3:] == [200, 201, 202] and numbers[0] < 50 < numbers[3]


def test_a_set_without_images_that_can_be_read_has_no_picture(tmp_path):
    folder = written(tmp_path / "set", row("counting"))
    (file,) = folder.glob("data/*.parquet")
    table = pq.read_table(file).drop_columns(["image"])
    pq.write_table(table, file)
    card = dataset_files(folder, "hf", "me/x")
    assert "assets/rows.jpg" not in card.files and "![" not in card.files["README.md"].decode()
    assert any("no picture" in note for note in card.notes)


@pytest.mark.parametrize("image", ["/home/me/1.jpg", {"bytes": None, "path": "/home/me/1.jpg"}])
def test_names_of_images_are_no_images(tmp_path, image):
    folder = written(tmp_path / "set", row("counting"))
    (file,) = folder.glob("data/*.parquet")
    pq.write_table(pa.Table.from_pylist([row("counting") | {"image": image}]), file)
    words = ["data", "push", str(folder), "--hub", "hf", "--repo", "me/x"]
    done = CliRunner().invoke(app, [*words, "--card-only", str(tmp_path / "card")])
    assert done.exit_code == 2 and "vlrft data convert" in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("image", [None, [], "", 5, [{"bytes": png((1, 2, 3), (8, 8))}]], ids=repr)
def test_a_column_image_of_another_kind_is_no_traceback(tmp_path, image):
    folder = written(tmp_path / "set", row("counting"))
    (file,) = folder.glob("data/*.parquet")
    pq.write_table(pa.Table.from_pylist([row("counting") | {"image": image}]), file)
    assert any("no picture" in note for note in dataset_files(folder, "hf", "me/x").notes)


def test_columns_with_paths_are_said(tmp_path):
    image = {"bytes": png((1, 2, 3), (64, 48)), "path": "/home/me/1.png"}
    folder = written(tmp_path / "set", row("counting"))
    (file,) = folder.glob("data/*.parquet")  # by others: ours have the name of an image only
    made = row("counting", image=image, source="/data/me/set.json")
    pq.write_table(pa.Table.from_pylist([made]), file)
    (note,) = [n for n in dataset_files(folder, "hf", "me/x").notes if "paths" in n]
    assert "source" in note and "image.path" in note and "problem" not in note


def test_the_folder_itself_takes_no_card(tmp_path):
    folder = written(tmp_path / "set", row("counting"))
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    words = ["data", "push", str(folder), "--hub", "hf", "--repo", "me/x"]
    done = CliRunner().invoke(app, [*words, "--card-only", str(folder)])
    assert done.exit_code == 2 and "name a new folder" in done.stderr.replace("\n", " ")
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


# ---- licence -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "head"),
    [
        ("cc-by-4.0", {"license": "cc-by-4.0"}),
        ("CC-BY-4.0", {"license": "cc-by-4.0"}),
        ("Apache License 2.0", {"license": "apache-2.0"}),
        ("MIT", {"license": "mit"}),
        ("Our Terms: v2", {"license": "other", "license_name": "our-terms-v2"}),
        (
            "https://example.org/terms",
            {
                "license": "other",
                "license_name": "example.org-terms",
                "license_link": "https://example.org/terms",
            },
        ),
        (None, {}),
    ],
)
def test_a_licence_is_named_as_the_hubs_name_it(given, head):
    assert licence_data(given) == head
    assert head.get("license", "mit") in KNOWN.split()


@pytest.mark.parametrize("given", ["", "  ", "a\x1b[31m", "\x00"])
def test_a_licence_that_is_no_name_is_refused(tmp_path, given):
    folder = written(tmp_path / "set", row("counting"))
    words = ["data", "push", str(folder), "--hub", "hf", "--repo", "me/x", "--license", given]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "--license" in done.stderr


def test_the_sources_own_licence_goes_along_and_none_is_made_up(tmp_path):
    source = tmp_path / "source"
    (source / "data").mkdir(parents=True)
    table = pa.Table.from_pylist([row("counting")])
    pq.write_table(table, source / "data" / "train-00000-of-00001.parquet")
    convert_folder(source, tmp_path / "without")
    assert stated_licence(tmp_path / "without" / "README.md") is None
    card = dataset_files(tmp_path / "without", "hf", "me/x")
    assert card.licence is None and "Nobody has stated" in card.files["README.md"].decode()
    assert any("no licence is stated" in note for note in card.notes)
    (source / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n# theirs\n")
    for name, path in {"whole": source, "data": source / "data"}.items():
        convert_folder(path, tmp_path / name)
        card = dataset_files(tmp_path / name, "hf", "me/x")
        assert card.licence == "cc-by-nc-4.0" and not card.notes
    said = dataset_files(tmp_path / "whole", "hf", "me/x", "mit").files["README.md"].decode()
    assert "license: mit" in said and "cc-by-nc" not in said


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("---\na: [\n---\n", "YAML at its head is broken"),
        ("---\n- a\n---\n", "YAML at its head is broken"),
        ("---\nlicense: [mit, apache-2.0]\n---\n", "one name is needed"),
        ("---\nlicense: 5\n---\n", "one name is needed"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_a_card_that_cannot_be_read_is_refused(tmp_path, head, message):
    folder = written(tmp_path / "set", row("counting"))
    (folder / "README.md").write_bytes(head.encode(errors="surrogateescape"))
    words = ["data", "push", str(folder), "--hub", "hf", "--repo", "me/x"]
    done = CliRunner().invoke(app, [*words, "--card-only", str(tmp_path / "card")])
    assert done.exit_code == 2 and message in done.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("stated", "head"),
    [("[mit]", "license: mit"), ("x)[](y", "license: other\nlicense_name: x-y")],
)
def test_a_licence_in_the_card_is_named_as_the_hubs_name_it(tmp_path, stated, head):
    folder = written(tmp_path / "set", row("counting"))
    (folder / "README.md").write_text(f"---\nlicense: {stated}\n---\n")
    assert card_of(folder).startswith(f"---\n{head}\n")


@pytest.mark.parametrize("link", ["LICENSE", "javascript:alert(1)", '"https://x/a>b\\n# H"'])
def test_a_licence_is_linked_only_to_a_page(tmp_path, link):
    folder = written(tmp_path / "set", row("counting"))
    head = f"license: other\nlicense_name: mine\nlicense_link: {link}"
    (folder / "README.md").write_text(f"---\n{head}\n---\n")
    assert "\nmine, as stated" in card_of(folder)


def test_rows_that_fit_nothing_are_said(tmp_path):
    folder = written(tmp_path / "unknown", row("counting") | {"task": "segmentation"})
    card = ["--hub", "hf", "--repo", "me/x", "--card-only", str(tmp_path / "card")]
    done = CliRunner().invoke(app, ["data", "push", str(folder), *card])
    assert done.exit_code == 2 and "no row is of a known task" in done.stderr
    folder = written(tmp_path / "nothing", row("counting"), row("counting"))
    (file,) = folder.glob("data/*.parquet")
    table = pq.read_table(file)
    place = table.schema.get_field_index("solution")
    pq.write_table(table.set_column(place, "solution", pa.nulls(2, pa.string())), file)
    assert any("2 rows hold no gold" in n for n in dataset_files(folder, "hf", "me/x").notes)
    pq.write_table(pa.table({"image": [1]}), file.with_name("test-00000-of-00001.parquet"))
    done = CliRunner().invoke(app, ["data", "push", str(folder), *card])
    assert done.exit_code == 2 and "columns of several types" in done.stderr.replace("\n", " ")


# ---- the owner's own text ----------------------------------------------------------------------


def test_what_the_owner_wrote_stays(tmp_path):
    folder = written(tmp_path / "set", row("counting"))
    file = folder / "README.md"
    text = file.read_text().replace(MARK, f"My words.\n\n{MARK}") + "\nMore of mine.\n"
    file.write_text(text.replace("# license: state", "license: mit\npretty_name: Mine #"))
    made = card_of(folder)
    assert made.index("My words.") < made.index(MARK) < made.index("## What is in it")
    assert made.index(MARK_END) < made.index("More of mine.")
    assert DatasetCard(made).data.pretty_name == "Mine" and "license: mit" in made
    # Written again over itself, nothing doubles.
    file.write_text(made)
    assert card_of(folder) == made
    file.write_text("# All mine\n\nNo marks.\n")
    made = card_of(folder)
    assert made.index("No marks.") < made.index(MARK) and made.count("# All mine") == 1


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "```\n## Not a heading\n```",
    "| a | b |\n|---|---|",
    "[click](javascript:alert(1))",
    "---\nlicense: mit\n---",
    f"{MARK_END}\n# outside",
    "\u202e\x1b[31m\x00",
    "{{ 7 * 7 }} {% raw %}",
    "`" * 7 + "\n<b>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_others_is_never_markup(tmp_path, text):
    """Prompt, gold, task, split's title and column names come from the set."""
    from markdown_it import MarkdownIt

    made = row("classification", problem=text, **{f"c {text}".replace("\0", ""): 1})
    made["solution"] = f"<answer>{text}</answer>"
    folder = written(tmp_path / "set", made)
    card = card_of(folder, repo="me/x")
    assert DatasetCard(card).data.license is None
    body = DatasetCard(card).text
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(body)
    headings = [t for t, after in zip(tokens, tokens[1:], strict=False) if t.type == "heading_open"]
    inner = [after.content for t, after in zip(tokens, tokens[1:], strict=False) if t in headings]
    assert inner == ["set", "What is in it", "Train with it", "Licence"]
    flat = [child for token in tokens for child in [token, *(token.children or [])]]
    html = [t.content.strip() for t in flat if t.type in ("html_block", "html_inline")]
    assert all(one.startswith("<!-- ") for one in html), html
    links = [str(t.attrGet("href")) for t in flat if t.type == "link_open"]
    assert links == ["https://github.com/modelscope/ms-swift"]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", body)
