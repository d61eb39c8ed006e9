"""The start models of `vlrft try`: each learns a set's format with a vocabulary of its own."""

import json
import random

import pytest

from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.rows import stored
from swift_vlrft.families import FAMILIES, family_of
from swift_vlrft.tiny.checkpoint import COMPACT
from tests.support.drawn_rows import boxed_rows


@pytest.mark.slow
@pytest.mark.parametrize("family", COMPACT)
def test_a_start_model_of_every_family_is_trained_and_opens_again(family, tmp_path):
    from swift.model import get_model_processor
    from swift.template import get_template

    from swift_vlrft.swift_plugin.warm_start import write_warm_start

    write_folder(tmp_path / "set", {"train": map(stored, boxed_rows(random.Random(0), 24))})
    losses = []
    start = write_warm_start(
        family,
        tmp_path / "set",
        tmp_path / "start",
        steps=12,
        progress=lambda step, note: losses.append(float(note.removeprefix("loss "))),
    )
    assert losses[-1] < 0.8 * losses[0], "it learns"
    assert start.longest <= 40 and start.left_out == 0
    config = json.loads((tmp_path / "start" / "config.json").read_text())
    text = config.get("text_config", config)
    assert text["vocab_size"] < 4096 and start.parameters < 3e6
    model, processor = get_model_processor(str(tmp_path / "start"), torch_dtype=None)
    template = get_template(processor)
    of_folder = family_of(name=str(tmp_path / "start"))  # as `swift rlhf --model` knows it
    assert of_folder is not None
    assert of_folder.states_ids == FAMILIES[family].states_ids
    picture = boxed_rows(random.Random(1), 1)[0].image
    if family in ("glm4v", "glm46v"):  # which do not read MAX_PIXELS
        picture = picture.resize((640, 480))
    prompt = {"messages": [{"role": "user", "content": "<image>Find."}], "images": [picture]}
    ids = template.encode(prompt)["input_ids"]
    assert max(ids) < text["vocab_size"], "no id of the real vocabulary is left"
    assert 1 < ids.count(model.config.image_token_id) < 100, "a large picture is seen small"
