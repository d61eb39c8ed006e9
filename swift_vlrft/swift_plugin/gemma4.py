"""Gemma 4 in ms-swift 4.6.0 under transformers 5.19.

ms-swift's forward pass was written for transformers 5.6, whose image features are one tensor; now
they are a tuple, one tensor an image (huggingface/transformers#46405), and a row with an image ends
in "'tuple' object has no attribute 'to'". The loader registered here gives the tuple what ms-swift
asks of a tensor. It stays a tuple, which transformers, and an ms-swift that is mended, join.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from swift.model import MODEL_MAPPING
from swift.model.models.gemma import Gemma4Loader


class Features(tuple[torch.Tensor, ...]):
    """The features of several images, [tokens, hidden] each; as one tensor where one is asked."""

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.cat(self).to(*args, **kwargs)

    def mean(self) -> torch.Tensor:
        return torch.cat(self).mean()


class FeaturesLoader(Gemma4Loader):
    def get_model(self, *args: Any, **kwargs: Any) -> Any:
        model = super().get_model(*args, **kwargs)
        model.model.get_image_features = MethodType(_image_features, model.model)
        return model


def _image_features(self: Any, *args: Any, **kwargs: Any) -> Any:
    found = type(self).get_image_features(self, *args, **kwargs)
    if isinstance(found.pooler_output, tuple):
        found.pooler_output = Features(found.pooler_output)
    return found


def register() -> None:
    """Have ms-swift load Gemma 4 in this way; other models, also gemma4_unified, as before."""
    MODEL_MAPPING["gemma4"].loader = FeaturesLoader
