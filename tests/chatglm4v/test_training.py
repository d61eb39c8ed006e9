"""Loss, gradients and generation, of batches with and without images and padding, and with LoRA."""

import pytest
import torch
from chatglm4v.reading import assert_close, image_row, lively_model, logits_of, padded, pixels
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel

from swift_vlrft.chatglm4v.modeling import ChatGLM4VModel
from swift_vlrft.chatglm4v.text import TextAttention
from swift_vlrft.chatglm4v.vision import VisionAttention

pytestmark = pytest.mark.slow  # torch is imported

ROWS = [[5, 6, 7, 8], image_row([5, 6], [12, 13, 14]), image_row([9], [4] * 6)]
IMAGES = [None, *pixels(2)]


def batch(rows=ROWS, images=2, side="right"):
    ids, mask = padded(rows, side)
    learned = mask.bool() & (ids < 300) & (mask.cumsum(1) > 1)
    labels = torch.where(learned, ids, -100)
    seen = pixels(images) if images else None
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, "pixel_values": seen}


def gradients(model, **changes):
    model.train().zero_grad()
    loss = model(**batch(**changes)).loss
    loss.backward()
    named = {n: w.grad for n, w in model.named_parameters() if w.requires_grad}
    return loss.detach(), {n: None if g is None else g.clone() for n, g in named.items()}


def assert_same(one, other):
    torch.testing.assert_close(one[0], other[0], atol=1e-6, rtol=1e-6)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=1e-5, rtol=1e-4, msg=name)


def with_lora(model):
    """The matrix that is adapted in both towers, everything else frozen."""
    torch.manual_seed(0)
    settings = {"target_modules": ["query_key_value"], "init_lora_weights": False}
    return get_peft_model(model, LoraConfig(r=2, **settings))


@pytest.mark.parametrize(("reentrant", "lora"), [(True, True), (False, False)])
def test_checkpointing_changes_neither_loss_nor_gradients(reentrant, lora, monkeypatch):
    """Of the text layers with the vision tower, without it, and as ms-swift's
    vit_gradient_checkpointing turns it on again.
    """
    # Once ms-swift has loaded an InternVL, every class of this process has another method.
    name = "enable_input_require_grads"
    original = getattr(PreTrainedModel, f"_old_{name}", getattr(PreTrainedModel, name))
    monkeypatch.setattr(PreTrainedModel, name, original)
    model = with_lora(lively_model()) if lora else lively_model()
    expected = gradients(model)
    assert all(gradient is not None and gradient.any() for gradient in expected[1].values())

    computed = []
    for module in model.modules():
        if isinstance(module, TextAttention | VisionAttention):
            module.register_forward_hook(lambda module, *_: computed.append(type(module)))
    tower = (model.base_model.model if lora else model).transformer.vision
    for part, times in ((model, 2), (None, 1), (tower, 2)):
        if part is None:
            tower.gradient_checkpointing_disable()
        else:
            part.gradient_checkpointing_enable({"use_reentrant": reentrant})
            part.enable_input_require_grads()
        computed.clear()
        assert_same(gradients(model), expected)
        assert computed.count(TextAttention) == 2 * 3
        assert computed.count(VisionAttention) == times * 3


def test_the_loss_is_the_mean_over_the_labels_and_their_number_can_be_given():
    model, inputs = lively_model(), batch()
    log_probs = []
    for row, image, labels in zip(ROWS, IMAGES, inputs["labels"], strict=True):
        wanted = labels[1 : len(row)]
        of_next = logits_of(model, row, image)[:-1].log_softmax(-1)
        log_probs += of_next[wanted >= 0, wanted[wanted >= 0]]
    total = -sum(log_probs)
    with torch.no_grad():
        mean, scaled = model(**inputs).loss, model(**inputs, num_items_in_batch=100).loss
    assert_close(mean, total / len(log_probs), 1e-5)
    assert_close(scaled, total / 100, 1e-5)


@pytest.mark.parametrize(("side", "attention"), [("left", "eager"), ("right", "sdpa")])
def test_gradients_of_a_batch_are_those_of_its_rows(side, attention):
    """And a row's image teaches nothing through the words that it replaces."""
    model = lively_model()
    model.set_attn_implementation(attention)
    labels = (batch()["labels"] >= 0).sum(1)
    loss, together = gradients(model, side=side)
    sums = {name: torch.zeros_like(gradient) for name, gradient in together.items()}
    for row, image, count in zip(ROWS, IMAGES, labels, strict=True):
        model.zero_grad()
        inputs = batch([row], 0) | {"pixel_values": None if image is None else image[None]}
        (model(**inputs).loss * count / labels.sum()).backward()
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                sums[name] += weight.grad
    assert_same((loss, together), (loss, sums))
    words = together["transformer.embedding.word_embeddings.weight"]
    assert not words[300:303].any() and words[5].any()


def test_a_batch_without_images_leaves_the_vision_tower_alone(monkeypatch):
    """Where it runs in every process, its part in the loss is 0."""
    loss, of_text = gradients(lively_model(), rows=ROWS[:1], images=0)
    for name, gradient in of_text.items():
        assert (gradient is None) == name.startswith("transformer.vision."), name
    monkeypatch.setattr(ChatGLM4VModel, "_tower_runs_everywhere", lambda model: True)
    everywhere, of_all = gradients(lively_model(), rows=ROWS[:1], images=0)
    assert everywhere == loss
    for name, gradient in of_all.items():
        assert not (gradient - of_text[name] if of_text[name] is not None else gradient).any(), name


# ---- generation is what reading on from the formulas gives -----------------------------------


def test_images_follow_their_rows_when_rows_are_multiplied():
    model, new, expected = lively_model(), 5, []
    for row, image in zip(ROWS, IMAGES, strict=True):
        text = list(row)
        for _ in range(new):  # greedily, everything computed anew for every token
            text.append(int(logits_of(model, text, image)[-1].argmax()))
        expected.append(text[len(row) :])
    ids, mask = padded(ROWS, "left")
    inputs = {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels(2)}
    inputs |= {"max_new_tokens": new, "min_new_tokens": new}
    sampled = model.generate(**inputs, do_sample=True, top_k=1, num_return_sequences=2)
    assert sampled[:, -new:].tolist() == [row for row in expected for _ in range(2)]
    torch.manual_seed(0)
    several = inputs | {"do_sample": False, "num_beams": 3}
    beams = [model.generate(**several, use_cache=use)[:, -new:] for use in (True, False)]
    assert torch.equal(*beams)


def test_a_filled_cache_needs_positions():
    """An image's patches share one, so that the length does not give the next."""
    model = lively_model()
    first = model(torch.tensor(ROWS[:1]), use_cache=True)
    with pytest.raises(ValueError, match="position_ids"):
        model(torch.tensor([[8]]), past_key_values=first.past_key_values, use_cache=True)
