"""Which tokens no answer may hold, and what becomes of an answer that holds one."""

from types import SimpleNamespace

import pytest
from support.plugin_run import answer_of

from swift_vlrft.families import FAMILIES
from swift_vlrft.families.family import TinySize
from swift_vlrft.tiny.checkpoint import build_processor, build_tokenizer

pytestmark = pytest.mark.slow  # ms-swift is imported

QWEN = "<|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>"
GLM = "<|begin_of_image|> <|end_of_image|>"
GLM_4_1 = f"{GLM} <|begin_of_video|> <|end_of_video|> <|image|> <|video|>"
HELD = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"), QWEN),
    **dict.fromkeys(("glm4v", "glm46v"), GLM_4_1),
    **dict.fromkeys(("chatglm4v", "cogagent_9b"), GLM),
    "internvl": "<img> </img> <IMG_CONTEXT> <video>",
    "minicpmv4_6": "<|image_pad|> <|video_pad|> <image> </image> <slice> </slice> <image_id> "
    "</image_id>",
    "gemma4": "<|image> <|image|> <image|> <|video|> <|audio> <|audio|> <audio|>",
    **dict.fromkeys(("qwen2", "qwen3"), ""),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_processor_and_configuration_name_the_tokens(name):
    from transformers import AutoConfig

    from swift_vlrft.chatglm4v import register
    from swift_vlrft.swift_plugin.vision_tokens import vision_ids

    register()
    tiny = FAMILIES[name].tiny
    config = AutoConfig.for_model(**tiny.config(TinySize(), tiny.vocabulary))
    tokenizer = build_tokenizer(tiny)
    processor = build_processor(tiny, tokenizer, config)
    # GLM-4v's template names the end of an answer, too, and another model's is left in the list.
    ends = [tokenizer.eos_token_id, tokenizer.pad_token_id, 10**6]
    template = SimpleNamespace(
        tokenizer=tokenizer, processor=processor, config=config, placeholder_tokens=ends
    )
    ids = vision_ids(template)
    assert {tokenizer.convert_ids_to_tokens(id) for id in ids} == set(HELD[name].split())


@pytest.mark.parametrize(
    ("ids", "mask", "clean"),
    [
        ([1, 2, 3], [], [1, 2, 3]),
        ([[1, 2], [3]], [[1, 0], [1]], [[1, 2], [3]]),
        ([1, 8, 3], [], [[1, 0, 3]]),
        ([[1, 8], [9, 9]], [], [[1, 0], [0, 0]]),
        ([1, 8, 9], [1, 0, 1], [[1, 8, 0]]),  # 8 is a scheduler's own picture
        ([[1, 8], [9]], [[1, 0], [0]], [[1, 8], [9]]),
        ([], [], []),
    ],
)
def test_forbidden_tokens_of_the_model_are_replaced(ids, mask, clean):
    from swift_vlrft.swift_plugin.vision_tokens import take_out

    sample = SimpleNamespace(response_token_ids=ids, response_loss_mask=mask)
    assert take_out(sample, {8, 9}, 0) == (clean != ids)
    assert sample.response_token_ids == clean


GRPO = ("--rlhf_type", "grpo")
ENGINES = """
from types import SimpleNamespace
import torch
from swift.template import TEMPLATE_MAPPING
from swift_vlrft.swift_plugin import vision_tokens
from vllm.v1.sample.logits_processor import validate_logits_processors_parameters
from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcRequestState

vision_tokens.vision_ids = lambda template: {1, 3}
of = TEMPLATE_MAPPING["qwen2_5_vl"].template_cls
kwargs = object.__new__(of).prepare_engine_kwargs()
found = [sum("Forbids" in str(base) for base in of.__mro__), kwargs]
if kwargs:
    config, device = SimpleNamespace(**kwargs), torch.device("cpu")
    validate_logits_processors_parameters(config.logits_processors, None)
    names = LogitsProcRequestState.__dataclass_fields__
    requests = SimpleNamespace(**dict.fromkeys(names, None) | {"device": device})
    built = build_custom_logits_processors(config, requests, False, config.logits_processors)
    for one, more in ((type(built[0])(config, device, False), ()), (built[0], (None,))):
        found.append(one.apply(torch.ones(2, 5), *more).isinf().tolist())
print(json.dumps(found))
"""


def test_both_runners_of_vllm_take_the_ids():
    pytest.importorskip("vllm")
    (subclasses, kwargs, *masks), said = answer_of(*GRPO, then=ENGINES)
    assert "may sample" not in said
    assert subclasses == 1 and kwargs["additional_config"] == {"vlrft_forbidden_ids": [1, 3]}
    assert masks == [[[False, True, False, True, False]] * 2] * 2
    drafts = '{"speculative_config": {"method": "ngram"}}'  # takes no processor of logits
    answer, said = answer_of(*GRPO, "--vllm_engine_kwargs", drafts, then=ENGINES)
    assert answer == [1, {}] and said.count("beside speculative_config vLLM may sample") == 1
