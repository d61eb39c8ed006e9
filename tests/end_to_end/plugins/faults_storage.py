"""A second plugin that removes what VLRFT_TEST_FAULT names, a pattern, after the first step."""

import os
from pathlib import Path

from swift.callbacks import TrainerCallback, callbacks_map


class Fault(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        for file in Path(args.output_dir).parent.glob(os.environ["VLRFT_TEST_FAULT"]):
            file.unlink()


callbacks_map["fault"] = Fault  # --callbacks fault
