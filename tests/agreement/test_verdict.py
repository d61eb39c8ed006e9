"""Which verdict, with which cause, follows from which evidence."""

import pytest
from support.agreement_rows import row

from swift_vlrft.agreement.figures import figures, noise
from swift_vlrft.agreement.measurement import Measurement, Moved
from swift_vlrft.agreement.picture import draw
from swift_vlrft.agreement.remedies import REMEDIES
from swift_vlrft.agreement.verdict import image_token, judge
from swift_vlrft.agreement.weights import fingerprint, part_of, row_sums, stale_parts, unchanged

IMAGE = 99
PROMPT = [1, 2, *[IMAGE] * 6, 3, 4]
FINE = 2.0**-23


def rows(image=0.0, text=0.0, **more):
    """Two rows whose engine is off by that much."""
    trainer = [-3.0, -1.0, -7.0]
    kept = {"trainer": trainer, "again": [v + 1e-3 for v in trainer], "rounded": trainer}
    return [
        row(
            [v + image for v in trainer],
            images=1,
            **{"prompt": PROMPT, "asked": PROMPT, **more},
            **kept,
        ),
        row([v - text for v in trainer], **kept),
    ]


def measured(found, **more):
    return Measurement("vLLM colocate", "m", found, noise(found, FINE), **more)


def moved(found, **more):
    values = {"before": figures([[0.0]], [[0.1]]), "stale": {}} | more
    return Moved(0.02, found, noise(found, FINE), **values)


def facts(**changed):
    same = {"dtype": ("float32", "float32"), "tied embeddings": ("tied", "tied")}
    return {**same, **changed}


def said(found):
    verdict = judge(found)
    return verdict.word, [cause.name for cause in verdict.causes]


CASES = {
    "alike": (measured(rows(1e-3, 1e-3)), ("agrees", [])),
    "more than the noise": (measured(rows(0.1, 0.1)), ("drifts", ["model"])),
    "other tokens": (measured(rows(2.0, 2.0)), ("broken", ["model"])),
    "a trainer that divides by 0": (
        measured([row([-1.0, -2.0], [float("-inf"), float("nan")], again=[float("nan")] * 2)]),
        ("broken", ["not finite"]),
    ),
    "a step too large for the type": (
        measured(rows(), adapter=True, moved=moved(rows(float("inf")))),
        ("broken", ["not finite"]),
    ),
    "an output layer of whatever the memory held": (
        measured(rows(float("nan")), facts=facts(**{"tied embeddings": ("tied", "separate")})),
        ("broken", ["tied embeddings"]),
    ),
    "image rows alone": (measured(rows(0.1)), ("drifts", ["images"])),
    "fewer image tokens": (
        measured(rows(0.1, asked=[1, 2, IMAGE, IMAGE, 3, 4])),
        ("broken", ["resize limits"]),
    ),
    "processor options": (
        measured(
            rows(0.1, asked=[1, 2, IMAGE, 3, 4]),
            facts={"processor options": ("{}", "{'max_pixels': 3136}")},
        ),
        ("broken", ["processor options"]),
    ),
    "a prefix more": (measured(rows(asked=[*PROMPT, 5])), ("broken", ["template prefix"])),
    "a prefix less": (measured(rows(asked=PROMPT[:-1])), ("broken", ["template prefix"])),
    "another system prompt": (measured(rows(asked=[7, 8, *PROMPT])), ("broken", ["template"])),
    "cut on the left": (measured(rows(asked=PROMPT[1:])), ("broken", ["truncation"])),
    "other types": (
        measured(rows(1e-3), facts={"dtype": ("bfloat16", "float16")}),
        ("drifts", ["dtype"]),
    ),
    "quantised": (
        measured(rows(0.1), facts={"quantisation": ("None", "fp8")}),
        ("drifts", ["quantisation"]),
    ),
    "sequential positions": (
        measured(rows(0.1), tried={"sequential positions": 1e-3}),
        ("drifts", ["positions"]),
    ),
    "sampling filters": (
        measured(rows(0.3, 0.3), tried={"no sampling filters": 1e-3}),
        ("drifts", ["sampling filters"]),
    ),
    "right as loaded": (
        measured(rows(0.1, 0.1), loaded=figures([[-1.0]], [[-1.0]])),
        ("drifts", ["loading"]),
    ),
    "an output layer of its own": (
        measured(rows(0.1, 0.1), facts=facts(**{"tied embeddings": ("tied", "separate")})),
        ("drifts", ["tied embeddings"]),
    ),
    "weights that moved": (measured(rows(), moved=moved(rows())), ("agrees", [])),
    "a part that stayed": (
        measured(rows(), moved=moved(rows(), stale={"vision mlp": ["visual.mlp.weight"]})),
        ("broken", ["missing sync"]),
    ),
    "the output layer stayed": (
        measured(
            rows(),
            facts=facts(**{"tied embeddings": ("tied", "separate")}),
            moved=moved(rows(), stale={"language output layer": ["lm_head.weight"]}),
        ),
        ("broken", ["tied embeddings"]),
    ),
    "a server with the old weights": (
        measured(rows(), moved=moved(rows(0.1, 0.1), before=figures([[0.0]], [[0.0]]))),
        ("broken", ["missing sync"]),
    ),
    "a server with some old weights": (
        measured(rows(), moved=moved(rows(0.1, 0.1))),
        ("broken", ["missing sync"]),
    ),
    "adapters that stayed": (
        measured(rows(), adapter=True, moved=moved(rows(0.1), stale={"vision mlp": ["a"]})),
        ("broken", ["LoRA merge"]),
    ),
    "adapters of half their size": (
        measured(rows(), adapter=True, moved=moved(rows(0.1), lora_scale=0.5)),
        ("broken", ["LoRA scale"]),
    ),
    "adapters that the engine does not add": (
        measured(rows(), adapter=True, moved=moved(rows(0.1), unplaced={"aligner": ["merger.0"]})),
        ("broken", ["adapters left out"]),
    ),
    "a trainer that the synchronisation changed": (
        measured(rows(), adapter=True, moved=moved(rows(0.1), altered=["language mlp"])),
        ("broken", ["altered weights"]),
    ),
    "counts that differ": (
        measured([row([-1.0] * 3, [-1.0] * 2, rounded=[-1.0] * 2)]),
        ("broken", ["lengths"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_verdict(name, tmp_path):
    found, expected = CASES[name]
    assert said(found) == expected
    draw(found, judge(found), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_every_remedy_has_a_case():
    assert {name for _, (_, names) in CASES.values() for name in names} == set(REMEDIES)


def test_an_engine_without_log_probabilities_is_a_note():
    verdict = judge(measured([row([], [-1.0])]))
    assert verdict.word == "agrees" and "only the prompts" in verdict.notes[-1]


def test_the_exit_codes():
    assert [
        judge(CASES[n][0]).exit_code for n in ("alike", "image rows alone", "other tokens")
    ] == [
        0,
        1,
        2,
    ]


def test_the_image_token_is_the_longest_run():
    assert image_token([1, 1, 5, 5, 5, 5, 2, 2, 2]) == 5


@pytest.mark.parametrize(
    ("ours", "engines", "part"),
    [
        ("visual.blocks.0.attn.qkv.bias", "visual.blocks.0.attn.qkv.bias", "vision attention"),
        ("model.visual.merger.mlp.0.weight", "visual.merger.mlp.0.weight", "aligner"),
        (
            "model.language_model.layers.0.self_attn.q_proj.weight",
            "language_model.model.layers.0.self_attn.qkv_proj.weight",
            "language attention",
        ),
        (
            "base_model.model.model.language_model.layers.1.mlp.up_proj.lora_A.default.weight",
            "language_model.model.layers.1.mlp.gate_up_proj.weight",
            "language mlp",
        ),
        (
            "model.language_model.layers.0.post_attention_layernorm.weight",
            "language_model.model.layers.0.post_attention_layernorm.weight",
            "language norms",
        ),
        ("lm_head.weight", "language_model.lm_head.weight", "language output layer"),
        (
            "model.language_model.embed_tokens.weight",
            "language_model.model.embed_tokens.weight",
            "language embeddings",
        ),
    ],
)  # fmt: skip
def test_both_sides_name_a_part_alike(ours, engines, part):
    assert part_of(ours) == part_of(engines) == part


def test_stale_parts():
    attention, mlp = "layers.0.self_attn.qkv_proj.weight", "layers.0.mlp.gate_up_proj.weight"
    trained = ["layers.0.self_attn.q_proj.weight", "layers.0.mlp.up_proj.weight"]
    assert stale_parts(trained, [], {attention: 0.0, mlp: 0.0}) == {}
    assert stale_parts(trained, [], {attention: 0.5, mlp: 0.01}) == {
        "language attention": [attention]
    }
    # Of a part that is frozen in some of its weights, one change is enough.
    frozen = ["layers.0.self_attn.o_proj.weight"]
    both = {attention: 0.0, "layers.0.self_attn.o_proj.weight": 1.0, mlp: 0.0}
    assert stale_parts(trained, frozen, both) == {}
    none = {attention: 1.0, "layers.0.self_attn.o_proj.weight": 1.0, mlp: 0.0}
    assert [*stale_parts(trained, frozen, none)] == ["language attention"]


def test_every_row_of_a_small_step_in_bfloat16_shows():
    """Plain sums of 8 numbers around 1 are the same by chance in one of 40 cases."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Module()
    weights = {"norm": torch.ones(4096), "rows": torch.ones(300, 8), "all": torch.ones(7)}
    for name, weight in weights.items():
        setattr(model, name, torch.nn.Parameter(weight.bfloat16()))
    prints = {name: fingerprint(weight) for name, weight in model.named_parameters()}
    before, generator = row_sums(model), torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.data += 0.02 * torch.randn(weight.shape, generator=generator).bfloat16()
    after = row_sums(model)
    assert [unchanged(before[name], after[name]) for name in weights] == [0, 0, 0]
    assert [unchanged(after[name], after[name]) for name in weights] == [1, 1, 1]
    assert not {*prints.values()} & {fingerprint(weight) for weight in model.parameters()}
    assert fingerprint(torch.tensor([float("nan"), 1.0])) == fingerprint(torch.tensor([0.0, 1.0]))
