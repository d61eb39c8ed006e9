"""Planning from Python: on which GPUs a run fits, and what another setting changes.

    python examples/plan.py recipes/qwen2_5_vl_3b/detection_4x80g.sh 4x24 4xH100
    python examples/plan.py recipes/qwen2_5_vl_3b/detection_4x80g.sh 4x24 move_model_batches=16

The numbers of `vlrft plan RECIPE --gpus 4x24`, as values.
"""

import sys

from swift_vlrft import plan
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import changed
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.run import read_run

GIB = 2**30


def main(recipe, *words):
    flags = dict(word.split("=", 1) for word in words if "=" in word)
    if refused := problems(recipe, flags) - problems(recipe, {}):
        raise ValueError("; ".join(sorted(refused)))
    named = [word for word in words if "=" not in word]
    for gpus in named or [None]:  # None: this machine's GPUs, or those in the recipe's name
        planned = plan(recipe, gpus)
        print(f"{planned.gpus.count} x {planned.gpus.name}: {told(planned.plan)}")
        for change in planned.changes()[:1]:  # none where it fits; else the cheapest
            print(f"    with {change.label}: {told(change.plan)}")
        if flags and (settings := planned.written(flags)):  # the recipe with these flags
            print(f"    with {flags}: {told(estimate(settings))}")


def problems(recipe, flags):
    """What `vlrft check` says of the recipe with these flags of ms-swift: unknown, not a number."""
    found = check_recipe(changed(read_run(recipe), flags))
    return {one.text for one in found if one.level == PROBLEM}


def told(plan):
    """What the command prints first: the verdict, the highest phase, the room that is left."""
    peak = f"peak {plan.peak.total / GIB:.1f} GiB in {plan.peak.name}"
    return f"{plan.verdict}, {peak}, {plan.headroom / GIB:+.1f} GiB of room"


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError) as error:  # a missing file, an unknown GPU: one line says it
        sys.exit(f"error: {error}")
