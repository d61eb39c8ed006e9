"""For a machine without CUDA: mcore-bridge imports TransformerEngine, which cannot be installed
there. Empty classes stand in for its own; a model cannot be built of them.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec

NAME = "transformer_engine"


class StandIn:
    """Seen by mcore-bridge alone: to peft, Megatron-Core and others TransformerEngine is absent."""

    def find_spec(self, name, path=None, target=None):
        if name == "mcore_bridge":
            import torch

            core = importlib.import_module(f"megatron.core.extensions.{NAME}")
            for key, value in list(vars(core).items()):
                if value is None and key[0].isupper():
                    setattr(core, key, type(key, (torch.nn.Module,), {}))
        elif name.partition(".")[0] == NAME and "mcore_bridge" in sys.modules:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = lambda name: _standing_in(name)


def _standing_in(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


sys.meta_path.insert(0, StandIn())
