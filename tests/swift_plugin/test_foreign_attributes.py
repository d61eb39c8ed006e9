"""No attribute of others' objects or modules is assigned to: subclasses and registries only."""

import ast
from pathlib import Path

import swift_vlrft

PLUGIN = Path(swift_vlrft.__file__).parent / "swift_plugin"
OURS = {
    **dict.fromkeys(("stored", "measured", "MeasureOnly", "Forbids"), "objects of this package"),
    **dict.fromkeys(("meta", "syntax"), "made or copied in the same function"),
    "config": "what the trainer of `vlrft agree`, a subclass, asks its own engine for",
    "template": "its model, as ms-swift's own trainers tell it (pipelines/train/sft.py)",
    "sys": "the arguments of a process of our own, which measures for `vlrft agree`",
    "parameter": "weights that it hands to vLLM as copies",
    **dict.fromkeys(("request", "infer_request"), "a row's request, as ms-swift's schedulers do"),
    "sample": "a completion of this rollout, as ms-swift's trainer does it",
}


def assigned(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            yield node.args[0]


def test_nothing_of_others_is_replaced():
    replaced = set()
    for file in PLUGIN.rglob("*.py"):
        for target in assigned(ast.parse(file.read_text())):
            text = ast.unparse(target)
            if text.split(".")[0] not in {"self", *OURS}:
                replaced.add((file.name, text))
    assert replaced == set()
