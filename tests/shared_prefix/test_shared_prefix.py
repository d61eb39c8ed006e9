"""Shared prefixes change no number: log-probabilities, entropies and gradients against the model on
separate rows, in float32, with transformers' own attention on that side.
"""

import copy
import itertools
from functools import cache

import pytest
import torch
from support.vision_rows import IMAGE, MIXTURES, Rows, make_rows, stock, tiny_model

from swift_vlrft.families import FAMILIES
from swift_vlrft.shared_prefix.attention import use_shared_attention
from swift_vlrft.shared_prefix.delta_net import has_another_forward
from swift_vlrft.shared_prefix.features import FeatureCache, encoders
from swift_vlrft.shared_prefix.forward import forward, unpack, values_of
from swift_vlrft.shared_prefix.images import CannotPack, Images
from swift_vlrft.shared_prefix.layout import pack

pytestmark = pytest.mark.slow  # torch is imported

SHARED = [*(name for name, family in FAMILIES.items() if family.shared_prefix), *MIXTURES]
KINDS = ["qwen2_5_vl", "qwen3_5", "internvl"]
# (text tokens, images, completion lengths) for each prompt of the micro-batch
BATCHES = {
    "one group of 8": [(9, 1, [5, 3, 7, 1, 4, 6, 2, 5])],
    "same lengths": [(9, 1, [4, 4, 4])],
    "group of 2, several images": [(12, 3, [6, 2])],
    "groups of 1, 2, 3": [(5, 1, [4]), (14, 2, [3, 6]), (8, 1, [2, 2, 5])],
    "no repeats": [(5, 1, [4]), (14, 1, [3])],
    "a completion cut to nothing": [(7, 1, [3, 0, 4])],
    "longer than a chunk of the delta rule": [(70, 1, [66, 3]), (2, 1, [1, 1])],
}


CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@cache
def models(family):
    """The same weights twice: transformers' own attention, and the packed one."""
    ours = tiny_model(family)
    theirs = copy.deepcopy(ours)
    theirs.set_attn_implementation("eager")
    use_shared_attention(ours)
    return ours, theirs


def packed_of(rows: Rows):
    return pack(
        rows.input_ids, rows.attention_mask, rows.position_ids, rows.completion_mask, rows.images
    )


def values(logits, targets):
    """Log-probability and entropy, written out."""
    logps = torch.log_softmax(logits.float() / 0.9, -1)
    entropy = -(logps.exp() * logps).sum(-1)
    return logps.gather(-1, targets[..., None])[..., 0], entropy


def theirs_of(model, rows: Rows):
    keep = rows.completion_mask.shape[1]
    logps, entropy = values(stock(model, rows), rows.input_ids[:, -keep:])
    mask = rows.completion_mask
    return logps.masked_fill(~mask, 0), entropy.masked_fill(~mask, 0)


def ours_of(model, rows: Rows, features=None):
    packed = packed_of(rows)
    logits = forward(model, packed, features)
    logps, entropy = values_of(logits.float(), packed.targets, 0.9, entropy=True)
    return unpack(logps, rows.completion_mask), unpack(entropy, rows.completion_mask)


def assert_same_gradients(ours, theirs):
    """Every parameter's gradient within 1e-5 of its largest entry."""
    other = dict(theirs.named_parameters())
    trained = [name for name, parameter in other.items() if parameter.grad is not None]
    assert trained == [name for name, p in ours.named_parameters() if p.grad is not None]
    for name, parameter in ours.named_parameters():
        if parameter.grad is not None:
            expected = other[name].grad
            # A gradient that is nothing but rounding (a key's bias) has no digits to compare.
            scale = max(expected.abs().max().item(), 1e-3)
            assert (parameter.grad - expected).abs().max().item() <= 1e-5 * scale, name
    assert trained
    ours.zero_grad()
    theirs.zero_grad()


def loss_of(logps, entropy, rows):
    """A loss in which every token counts differently, as advantages and clipping make it."""
    weights = torch.randn(logps.shape, generator=torch.Generator().manual_seed(1))
    return (logps * weights + 0.1 * entropy * weights.flip(1))[rows.completion_mask].sum()


# One family of each kind of attention meets every batch, the others three each.
CASES = [
    (family, batch)
    for n, family in enumerate(SHARED)
    for m, batch in enumerate(BATCHES)
    if family in KINDS or (n + m) % 7 < 3
]


@pytest.mark.parametrize(("family", "batch"), CASES)
def test_values_and_every_gradient_are_those_of_separate_rows(family, batch):
    ours, theirs = models(family)
    rows = make_rows(theirs, BATCHES[batch])
    expected, got = theirs_of(theirs, rows), ours_of(ours, rows)
    torch.testing.assert_close(got, expected, **CLOSE)
    loss_of(*expected, rows).backward()
    loss_of(*got, rows).backward()
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize(
    "options",
    [{"left": True}, {"alike": 3}, {"order": [4, 0, 3, 1, 2, 5]}],
    ids=["padded on the left", "completions that begin alike", "groups not side by side"],
)
@pytest.mark.parametrize("family", KINDS)
def test_rows_in_other_shapes(family, options):
    ours, theirs = models(family)
    rows = make_rows(theirs, [(9, 1, [5, 3, 6]), (12, 2, [2, 7, 4])], **options)
    torch.testing.assert_close(ours_of(ours, rows), theirs_of(theirs, rows), **CLOSE)
    packed = packed_of(rows)
    assert len(packed.groups) == 2 and packed.repeats


def test_tokens_and_images_stand_once():
    _, theirs = models("qwen2_5_vl")

    def packed_and_prompts(groups, **options):
        rows = make_rows(theirs, groups, **options)
        return packed_of(rows), rows.attention_mask.sum(1) - rows.completion_mask.sum(1)

    packed, prompts = packed_and_prompts([(9, 2, [5, 3, 6]), (12, 1, [4])])
    assert packed.tokens == prompts[0] + prompts[3] + 5 + 3 + 6 + 4
    assert len(packed.distinct_images) == 3 and len(packed.images.tokens) == 7
    # What completions begin with in common is computed once as well, equal ones altogether.
    for alike, completions in ((2, 2 + 3 + 3), (5, 5)):
        packed, prompts = packed_and_prompts([(9, 1, [5, 5])], alike=alike)
        assert packed.tokens == prompts[0] + completions


def test_the_same_words_about_another_image_are_another_prompt():
    _, theirs = models("qwen2_5_vl")
    rows = make_rows(theirs, [(9, 1, [5, 3, 6])])
    tokens = rows.images.pixel_values.shape[0] // 3
    rows.images.pixel_values[tokens] += 1e-3  # one patch of the second row's image
    packed = packed_of(rows)
    assert [len(g.lengths) for g in packed.groups] == [2, 0]


def test_a_completion_sees_no_other():
    ours, theirs = models("qwen2_5_vl")
    rows = make_rows(theirs, [(9, 1, [5, 3, 6])])
    before, _ = ours_of(ours, rows)
    region = rows.input_ids[:, -rows.completion_mask.shape[1] :]
    region[1][rows.completion_mask[1]] = 7  # another second completion
    after, _ = ours_of(ours, rows)
    torch.testing.assert_close(after[[0, 2]], before[[0, 2]], **CLOSE)
    assert not torch.allclose(after[1], before[1], atol=1e-2)


@pytest.mark.parametrize(
    ("family", "reentrant"),
    [*itertools.product(SHARED, [False]), *itertools.product(KINDS, [True])],
)
def test_gradient_checkpointing(family, reentrant):
    ours, theirs = (copy.deepcopy(m) for m in models(family))
    for model in (ours, theirs):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
    rows = make_rows(theirs, [(9, 1, [5, 3, 6]), (12, 1, [2])])
    for model, of in ((ours, ours_of), (theirs, theirs_of)):
        loss_of(*of(model, rows), rows).backward()
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("family", [*KINDS, "qwen3_vl", "qwen3_vl_moe"])
def test_lora_with_a_frozen_encoder_and_kept_features(family):
    from peft import LoraConfig, get_peft_model

    adapted = []
    for model in models(family):
        torch.manual_seed(0)
        names = "q_proj|v_proj|down_proj|in_proj_qkv|in_proj_a|out_proj"
        config = LoraConfig(target_modules=rf".*language_model.*\.({names})", r=4)
        peft = get_peft_model(copy.deepcopy(model), config)
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        adapted.append(peft)
    ours, theirs = adapted
    rows = make_rows(models(family)[1], [(9, 1, [5, 3, 6]), (12, 2, [2, 2])])
    packed, encoder = packed_of(rows), encoders(ours.get_base_model())[-1]
    digests = [packed.images.digest(i) for i in packed.distinct_images]
    kept, runs = FeatureCache(1 << 20), []
    handle = encoder.register_forward_hook(lambda *_: runs.append(1))
    with torch.no_grad(), kept.fill(encoder, digests, packed.distinct_tokens):
        first = ours_of(ours, rows)
    got = ours_of(ours, rows, kept.get(encoder, digests))
    handle.remove()
    assert len(runs) == 1
    torch.testing.assert_close(got[0], first[0], rtol=1e-6, atol=1e-6)
    loss_of(*got, rows).backward()
    loss_of(*theirs_of(theirs, rows), rows).backward()
    assert_same_gradients(ours, theirs)


def test_features_are_kept_by_content_and_within_bytes():
    ours, theirs = models("qwen2_5_vl")
    rows = make_rows(theirs, [(9, 1, [5, 3]), (12, 1, [2])])
    packed, encoder = packed_of(rows), ours.model.visual
    one, two = (packed.images.digest(i) for i in packed.distinct_images)
    assert one == packed.images.digest(1) != two  # the second row shows the first row's image
    size = packed.distinct_tokens[0] * 64 * 4
    kept = FeatureCache(size)
    with torch.no_grad(), kept.fill(encoder, [one, two], packed.distinct_tokens):
        ours_of(ours, rows)
    assert kept.bytes == size
    assert kept.get(encoder, [one]) is not None and kept.get(encoder, [one, two]) is None
    assert kept.get(models("qwen2_vl")[0].model.visual, [one]) is None  # another model's encoder
    kept.clear()
    assert kept.bytes == 0 and kept.get(encoder, [one]) is None


def test_bf16_within_its_rounding():
    ours, theirs = (copy.deepcopy(m).bfloat16() for m in models("qwen2_5_vl"))
    rows = make_rows(theirs, [(9, 1, [5, 3, 6]), (12, 1, [2, 8])])
    exact, _ = theirs_of(models("qwen2_5_vl")[1], rows)
    with torch.no_grad():
        error = (ours_of(ours, rows)[0] - exact).abs().max()
        usual = (theirs_of(theirs, rows)[0] - exact).abs().max()
    assert error < 2 * usual


def test_attention_without_a_packed_sequence_is_sdpa():
    ours, theirs = models("qwen2_5_vl")
    rows = make_rows(theirs, [(9, 1, [5, 3, 6])])
    torch.testing.assert_close(stock(ours, rows), stock(theirs, rows), rtol=1e-5, atol=1e-4)
    prompt = rows.input_ids[:1, :-6]
    inputs = rows.images.inputs([0]) | {"mm_token_type_ids": (prompt == IMAGE).int()}
    mine, stocks = (
        model.eval().generate(prompt, **inputs, max_new_tokens=5, do_sample=False)
        for model in (ours, theirs)
    )
    ours.train()
    theirs.train()
    assert mine.tolist() == stocks.tolist()


def test_a_layer_whose_forward_was_replaced_is_found():
    """As accelerate does for several devices; what the class does then is never called."""
    model = tiny_model("qwen3_5")
    assert not has_another_forward(model)
    layer = model.model.language_model.layers[0].linear_attn
    layer.forward = layer.forward
    assert has_another_forward(model)


def test_a_saved_model_does_not_ask_for_our_attention(tmp_path):
    models("qwen2_5_vl")[0].save_pretrained(tmp_path)
    assert "vlrft" not in (tmp_path / "config.json").read_text()


@pytest.mark.parametrize("family", KINDS)
def test_no_mask_of_the_packed_length_squared(family):
    """Nothing as large as (tokens x tokens) booleans is made at 8 x 200 beside a prompt of 100."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.dtype == torch.bool:
                largest = max(largest, out.numel())
            return out

    ours, theirs = models(family)
    rows = make_rows(theirs, [(100, 1, [200] * 8)])
    with torch.no_grad(), Watch():
        ours_of(ours, rows)
    assert largest <= 200 * 350 < packed_of(rows).tokens ** 2 / 40


@pytest.mark.parametrize(
    ("field", "place", "value", "said"),
    [
        ("input_ids", (0, -2), IMAGE, "completion of row 0"),  # a policy may write one
        ("input_ids", (1, slice(0, 9)), 7, "tokens of 1"),  # no image in the second row
        ("attention_mask", (0, 2), 0, "padding between"),
    ],
)
def test_what_cannot_be_packed_says_why(field, place, value, said):
    rows = make_rows(models("qwen2_5_vl")[1], [(2, 1, [5, 3])])
    getattr(rows, field)[place] = value
    with pytest.raises(CannotPack, match=said):
        packed_of(rows)


def test_patches_that_are_missing_are_said():
    with pytest.raises(CannotPack, match="4 patches, pixel_values has 5"):
        Images(torch.zeros(5, 3), torch.tensor([[1, 2, 2]]), IMAGE, 2)
