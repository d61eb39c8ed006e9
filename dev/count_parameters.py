"""Counts the parameters of every model in swift_vlrft/families/models.json and writes them there.

python dev/count_parameters.py
"""

import json
from dataclasses import asdict

from swift_vlrft.families.published import MODELS_FILE
from swift_vlrft.memory.models import count_parameters

models = json.loads(MODELS_FILE.read_text())
for config in models.values():
    if "like" not in config:
        config.pop("parameters", None)
        config["parameters"] = asdict(count_parameters(config))
lines = [f"  {json.dumps(name)}: {json.dumps(config)}" for name, config in models.items()]
MODELS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
