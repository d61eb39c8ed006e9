"""Which verdict, with which cause, follows from which evidence."""

import json
from pathlib import Path

import pytest
from agreement_rows import row

from swift_vlrft.agreement.figures import figures, noise
from swift_vlrft.agreement.measurement import Measurement, Moved
from swift_vlrft.agreement.picture import draw
from swift_vlrft.agreement.remedies import REMEDIES
from swift_vlrft.agreement.verdict import WORDS, image_token, judge
from swift_vlrft.agreement.weights import fingerprint, part_of, row_sums, stale_parts, unchanged

TABLE = Path(__file__).with_name("verdicts.jsonl")
"""How far the engine is off in rows with images and without; ``asked``: its prompt of an image row;
``moved``: the same after the trained weights moved."""
CASES = {case["why"]: case for case in map(json.loads, TABLE.read_text().splitlines())}
PROMPT = [1, 2, *[99] * 6, 3, 4]
FINE = 2.0**-23


def rows(image=0.0, text=0.0, asked=PROMPT):
    trainer = [-3.0, -1.0, -7.0]
    kept = {"trainer": trainer, "again": [v + 1e-3 for v in trainer], "rounded": trainer}
    seen = kept | {"images": 1, "prompt": PROMPT, "asked": asked}
    return [row([v + image for v in trainer], **seen), row([v - text for v in trainer], **kept)]


def measured(case):
    off = {key: case[key] for key in ("image", "text", "asked") if key in case}
    compared = [row(**case["row"])] if "row" in case else rows(**off)
    values = {key: case[key] for key in ("facts", "tried", "adapter") if key in case}
    if "loaded" in case:
        values["loaded"] = figures([[-1.0]], [[-1.0]])
    if "moved" in case:
        more = {"stale": {}} | case["moved"]
        after = rows(more.pop("image", 0.0), more.pop("text", 0.0))
        before = figures([[0.0]], [[0.0 if more.pop("alike before", False) else 0.1]])
        values["moved"] = Moved(0.02, after, noise(after, FINE), before, **more)
    return Measurement("vLLM colocate", "m", compared, noise(compared, FINE), **values)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_verdict(case):
    verdict = judge(measured(case))
    assert verdict.word == case["word"] and verdict.exit_code == WORDS.index(case["word"])
    assert [cause.name for cause in verdict.causes] == case["causes"]


def test_every_remedy_has_a_case():
    assert {name for case in CASES.values() for name in case["causes"]} == set(REMEDIES)


@pytest.mark.parametrize("why", ["a trainer that divides by 0", "a step too large for the type"])
def test_a_picture_is_drawn_of_one_comparison_and_of_two(why, tmp_path):
    compared = measured(CASES[why])
    draw(compared, judge(compared), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_an_engine_without_log_probabilities_is_a_note():
    verdict = judge(measured({"row": {"engine": [], "trainer": [-1.0]}}))
    assert verdict.word == "agrees" and len(verdict.notes) == 1


def test_the_image_token_is_the_longest_run():
    assert image_token([1, 1, 5, 5, 5, 5, 2, 2, 2]) == 5


@pytest.mark.parametrize(
    ("part", "ours", "engines"),
    [
        ("vision attention", "visual.blocks.0.attn.qkv.bias", "visual.blocks.0.attn.qkv.bias"),
        ("aligner", "model.visual.merger.mlp.0.weight", "visual.merger.mlp.0.weight"),
        ("language attention", "layers.0.self_attn.q_proj.weight", "layers.0.attn.qkv_proj.weight"),
        ("language mlp", "layers.1.mlp.up_proj.lora_A.default.weight", "layers.1.mlp.up.weight"),
        ("language norms", "layers.0.post_attention_layernorm.weight", "model.norm.weight"),
        ("language output layer", "lm_head.weight", "language_model.lm_head.weight"),
        ("language embeddings", "language_model.embed_tokens.weight", "embed_tokens.weight"),
    ],
)
def test_both_sides_name_a_part_alike(part, ours, engines):
    assert part_of(ours) == part_of(engines) == part


def test_stale_parts():
    attention, mlp = "layers.0.self_attn.qkv_proj.weight", "layers.0.mlp.gate_up_proj.weight"
    trained = ["layers.0.self_attn.q_proj.weight", "layers.0.mlp.up_proj.weight"]
    assert stale_parts(trained, [], {attention: 0.0, mlp: 0.0}) == {}
    kept = {"language attention": [attention]}
    assert stale_parts(trained, [], {attention: 0.5, mlp: 0.01}) == kept
    # Of a part that is frozen in some of its weights, one change is enough.
    frozen = "layers.0.self_attn.o_proj.weight"
    assert stale_parts(trained, [frozen], {attention: 0.0, frozen: 1.0, mlp: 0.0}) == {}
    none = {attention: 1.0, frozen: 1.0, mlp: 0.0}
    assert [*stale_parts(trained, [frozen], none)] == ["language attention"]


def test_every_row_of_a_small_step_in_bfloat16_shows():
    """Plain sums of 8 numbers around 1 are the same by chance in one of 40 cases."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Module()
    weights = {"norm": torch.ones(4096), "rows": torch.ones(300, 8), "all": torch.ones(7)}
    for name, weight in weights.items():
        setattr(model, name, torch.nn.Parameter(weight.bfloat16()))
    prints = {fingerprint(weight) for weight in model.parameters()}
    before, generator = row_sums(model), torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.data += 0.02 * torch.randn(weight.shape, generator=generator).bfloat16()
    after = row_sums(model)
    assert [unchanged(before[name], after[name]) for name in weights] == [0, 0, 0]
    assert [unchanged(after[name], after[name]) for name in weights] == [1, 1, 1]
    assert not prints & {fingerprint(weight) for weight in model.parameters()}
    assert fingerprint(torch.tensor([float("nan"), 1.0])) == fingerprint(torch.tensor([0.0, 1.0]))
