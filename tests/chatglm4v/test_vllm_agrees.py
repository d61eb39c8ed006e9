"""vLLM's own implementation computes the same: the text model in its engine, the vision tower."""

import importlib.util

import pytest
from support.swift_run import VLLM_ON_CPU, run_python

CODE = """
import sys
import torch
from support import cpu_engines
from support.glm4v_reading import lively_model, pixels
from vllm import LLM, SamplingParams
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.model_executor.models.glm4v import EVA2CLIPModel

folder, original_rope = sys.argv[1], sys.argv[2] == "True"
model = lively_model(original_rope=original_rope)
model.save_pretrained(folder)
engine = LLM(
    folder,
    hf_overrides={"architectures": ["GLM4VForCausalLM"]},
    dtype="float32",
    max_model_len=64,
    max_num_seqs=1,
    max_logprobs=-1,
    logprobs_mode="raw_logits",
    enforce_eager=True,
    skip_tokenizer_init=True,  # so that it takes no images: the tower is built by itself below
    limit_mm_per_prompt={"image": 0},
)
ids = torch.randint(0, 300, (1, 30), generator=torch.Generator().manual_seed(0))
sampling = SamplingParams(max_tokens=1, prompt_logprobs=-1, detokenize=False)
rows = engine.generate([{"prompt_token_ids": ids[0].tolist()}], sampling)[0].prompt_logprobs[1:]
theirs = torch.tensor([[row[i].logprob for i in range(320)] for row in rows])
with torch.no_grad():
    ours = model(ids).logits[0, :-1]
print("logits", float(ours.std()), float((theirs - ours).abs().max()))

config = engine.llm_engine.vllm_config
with set_current_vllm_config(config), torch.no_grad():
    tower = EVA2CLIPModel(config.model_config.hf_config)
    weights = model.transformer.vision.state_dict()
    parts = [weights.pop(f"linear_proj.{name}.weight") for name in ("gate_proj", "dense_h_to_4h")]
    tower.load_state_dict(weights | {"linear_proj.merged_proj.weight": torch.cat(parts)})
    process_weights_after_loading(tower, config.model_config, torch.device("cpu"))
    theirs = tower(pixels(2))
    ours = model.transformer.vision(pixels(2))
print("vision", float(ours.std()), float((theirs - ours).abs().max()))
"""


@pytest.mark.nightly
@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed")
@pytest.mark.parametrize("original_rope", [True, False])
def test_text_logits_and_vision_tower(tmp_path, original_rope):
    variables = VLLM_ON_CPU | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_SGL_KERNEL": "0"}
    done = run_python(CODE, str(tmp_path), str(original_rope), **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    found = {line[0]: tuple(map(float, line[1:])) for line in lines if len(line) == 3}
    assert found["logits"][0] > 1 and found["logits"][1] < 1e-4
    assert found["vision"][0] > 0.05 and found["vision"][1] < 1e-5
