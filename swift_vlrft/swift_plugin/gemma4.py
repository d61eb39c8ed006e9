"""Load Gemma 4 in ms-swift 4.6.0 under transformers 5.19.

ms-swift's forward pass was written for transformers 5.6, whose image features are one tensor; now
they are a tuple, one tensor an image (huggingface/transformers#46405), and a row with an image ends
in "'tuple' object has no attribute 'to'". The model that is loaded here gives the tuple what
ms-swift asks of a tensor. It stays a tuple, which transformers, and an ms-swift that is mended,
join.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from swift.model import MODEL_MAPPING, register_model
from swift.model.models.gemma import Gemma4Loader
from transformers.models.gemma4 import modeling_gemma4 as transformers_own


class Features(tuple[torch.Tensor, ...]):
    """The features of several images, [tokens, hidden] each; as one tensor if asked for."""

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.cat(self).to(*args, **kwargs)

    def mean(self) -> torch.Tensor:
        return torch.cat(self).mean()


class Gemma4Model(transformers_own.Gemma4Model):
    def get_image_features(self, *args: Any, **kwargs: Any) -> Any:
        features = super().get_image_features(*args, **kwargs)
        if not isinstance(features.pooler_output, tuple):
            return features
        return type(features)(**{**features, "pooler_output": Features(features.pooler_output)})


# Checkpoints keep the name of the class.
class Gemma4ForConditionalGeneration(transformers_own.Gemma4ForConditionalGeneration):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = Gemma4Model(config)
        self.post_init()


class FeaturesLoader(Gemma4Loader):
    def get_model(self, *args: Any, **kwargs: Any) -> Any:
        self.auto_model_cls = self.auto_model_cls or Gemma4ForConditionalGeneration  # type: ignore[has-type]
        return super().get_model(*args, **kwargs)


def register() -> None:
    """Register the loader of Gemma 4 in ms-swift; gemma4_unified is loaded as before."""
    meta = MODEL_MAPPING["gemma4"]
    name = meta.model_arch.arch_name  # ms-swift registers by the name and puts the object there
    register_model(replace(meta, loader=FeaturesLoader, model_arch=name), exist_ok=True)
