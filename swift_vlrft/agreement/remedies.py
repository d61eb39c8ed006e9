"""What to do about each cause that a verdict may name."""

REMEDIES = {
    "resize limits": (
        "let both sides see the same MAX_PIXELS, MIN_PIXELS and processor options: as variables "
        "of the script, not in --vllm_engine_kwargs or for one of the processes"
    ),
    "processor options": (
        "take mm_processor_kwargs out of --vllm_engine_kwargs, or give the same limits to the "
        "trainer (--model_kwargs)"
    ),
    "template prefix": (
        "give both sides the same --template, --response_prefix and --enable_thinking"
    ),
    "template": (
        "give both sides the same --template, --system, --agent_template and chat template"
    ),
    "truncation": "raise --max_length, or set --truncation_strategy delete",
    "lengths": (
        "ms-swift skips the importance correction of such rows; look for a scheduler or stop "
        "words that change the answer after it was sampled"
    ),
    "dtype": "give the engine the trainer's type: --torch_dtype",
    "quantisation": (
        "train and sample with the same weights: no quantization in --vllm_engine_kwargs"
    ),
    "tied embeddings": (
        "set tie_word_embeddings alike in config.json and in its text_config: one side has an "
        "output layer of its own, which no update reaches"
    ),
    "sampling filters": (
        "--top_k -1 --top_p 1 --min_p 0 --repetition_penalty 1: the engine's log-probabilities are "
        "those of the tokens left over, or as changed by the penalty, and the trainer's are not"
    ),
    "not finite": (
        "--temperature has to be above 0, as the trainer divides by it; else look for weights or "
        "activations that are no numbers, such as those of float16"
    ),
    "positions": (
        "the engine counts image tokens in order: load an implementation of the model with its "
        "positions (for GLM-4v this package has one: pass its plugin)"
    ),
    "missing sync": (
        "these weights do not reach the engine: compare their names with the engine's, update "
        "vLLM and ms-swift, or freeze that part (--freeze_vit, --freeze_aligner)"
    ),
    "LoRA merge": (
        "the engine answers without the adapter, or not with all of it: --vllm_enable_lora false "
        "merges it into what is sent; else update ms-swift"
    ),
    "adapters left out": (
        "vLLM adds adapters to the language model alone unless it is told: --vllm_engine_kwargs "
        "'{\"enable_tower_connector_lora\": true}' if it can for this model; else "
        "--vllm_enable_lora false, or train without them (--freeze_vit true --freeze_aligner true)"
    ),
    "altered weights": (
        "the engine was handed the trainer's own tensors and writes into them, which spoils the "
        "model with every step: --vllm_enable_lora false; else update ms-swift and vLLM"
    ),
    "LoRA scale": (
        "the adapter is added with another factor: look at --lora_alpha, --use_rslora and "
        "adapters loaded on top of another"
    ),
    "images": (
        "prompts are alike, pixels or the vision tower are not: compare resize filter, "
        "normalisation and vision attention; --engine transformers shows whether it is vLLM's"
    ),
    "loading": (
        "the weights agree as loaded and no longer after a synchronisation: their names or order "
        "are mixed up on the way; update ms-swift and vLLM"
    ),
    "model": (
        "the two compute other things on text, too: compare the versions of vLLM and "
        "transformers, rope settings in config.json, --attn_impl"
    ),
}
