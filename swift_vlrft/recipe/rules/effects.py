"""Find flags that do nothing beside the others, and say what they would need.

--sleep_level 1                 without --use_vllm true there is no vLLM
--kl_coef 0.05                  is PPO's: in GRPO --beta is the weight of the KL
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from swift_vlrft.recipe.history import OF_OTHERS
from swift_vlrft.recipe.rules.batches import engine_mode
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding, problem
from swift_vlrft.recipe.run import NoValue, Run

ENGINE = r"vllm_(?!mode|server)\w+|sleep_level|offload_(?:model|optimizer)|move_model_batches"


class Idle(NamedTuple):
    flags: str
    """A regular expression of their names."""
    works: Callable[[Run], bool]
    needs: str
    level: str = NOTE


def _kind(*kinds: str) -> Callable[[Run], bool]:
    return lambda run: run.text("rlhf_type") in kinds


def _reward(name: str) -> Callable[[Run], bool]:
    return lambda run: name in run.texts("reward_funcs")


def _lora(run: Run) -> bool:
    return run.text("tuner_type") != "full"


IDLE = (
    Idle(r"vllm_server_\w+", lambda run: engine_mode(run) == "server",
         "it needs --use_vllm true --vllm_mode server; leave it out, or start `swift rollout`",
         PROBLEM),
    Idle(ENGINE, lambda run: run.true("use_vllm") or not run.omits("use_vllm"),
         "it needs --use_vllm true", PROBLEM),
    Idle(ENGINE, lambda run: run.true("use_vllm"), "it needs --use_vllm true"),
    Idle(r"vllm_(?:max_model_len|gpu_memory_utilization|tensor_parallel_size|use_async_engine"
         r"|enable_lora|max_lora_rank)|sleep_level", lambda run: engine_mode(run) != "server",
         "under --vllm_mode server give it to `swift rollout`"),
    Idle("vllm_use_async_engine", lambda run: engine_mode(run) != "colocate",
         "ms-swift colocates no such engine"),
    Idle(r"kl_coef|cliprange(?:_value)?|vf_coef|gamma|lam|whiten_rewards|num_ppo_epochs"
         r"|num_mini_batches|local_rollout_forward_batch_size|num_sample_generations"
         r"|missing_eos_penalty", _kind("ppo"), "it is PPO's"),
    Idle("rpo_alpha|ld_alpha|discopop_tau|loss_weights", _kind("dpo"), "it is DPO's"),
    Idle("desirable_weight|undesirable_weight", _kind("kto"), "it is KTO's"),
    Idle("simpo_gamma|cpo_alpha", _kind("cpo", "simpo"), "it is CPO's and SimPO's"),
    Idle("lmbda|sft_alpha|gkd_logits_topk", _kind("gkd"), "it is GKD's"),
    Idle("reward_weights|epsilon|epsilon_high|num_iterations|scale_rewards|dynamic_sample"
         "|importance_sampling_level", _kind("grpo"), "it is GRPO's"),
    Idle(r"cosine_\w+", _reward("cosine"), "it needs --reward_funcs cosine"),
    Idle("repetition_n_grams|repetition_max_penalty", _reward("repetition"),
         "it needs --reward_funcs repetition"),
    Idle("soft_max_length|soft_cache_length", _reward("soft_overlong"),
         "it needs --reward_funcs soft_overlong"),
    Idle("ref_model_mixup_alpha|ref_model_sync_steps", lambda run: run.true("sync_ref_model"),
         "it needs --sync_ref_model true"),
    Idle("max_resample_times", lambda run: run.true("dynamic_sample"),
         "it needs --dynamic_sample true"),
    Idle(r"teacher_(?!model$|model_server)\w+|offload_teacher_model",
         lambda run: not run.omits("teacher_model", "teacher_model_server"),
         "it needs --teacher_model or --teacher_model_server"),
    Idle(r"lora_\w+|use_rslora|use_dora|target_modules|target_regex|vllm_enable_lora", _lora,
         "under --tuner_type full there is no LoRA"),
    Idle("vllm_max_lora_rank", lambda run: run.true("vllm_enable_lora"),
         "it needs --vllm_enable_lora true"),
)  # fmt: skip


def idle(run: Run) -> Iterator[Finding]:
    """Yield one finding a flag: of the first thing that it lacks."""
    for name, flag in run.given.items() if run.command == "rlhf" else ():
        value = run.as_given(name)
        off = value in (False, 0, None) or (value == 1 and name.endswith("parallel_size"))
        for row in IDLE if not off else ():
            with suppress(NoValue):
                if re.fullmatch(row.flags, name) and name in run.flags and not row.works(run):
                    kind, ours = run.text("rlhf_type"), OF_OTHERS.get(name, "")
                    text = f"--{name} has no effect here: {row.needs}"
                    text += f", and --rlhf_type is {kind}" * row.needs.startswith("it is")
                    text += f"; in GRPO --{ours} is the flag for it" * bool(ours and run.grpo)
                    yield problem(run, flag, "no-effect", text, level=row.level)
                    break
