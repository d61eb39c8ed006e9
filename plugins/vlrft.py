"""`swift rlhf --rlhf_type grpo --external_plugins plugins/vlrft.py ...`: everything of swift-
vlrft, known to ms-swift.
"""

import sys

from swift_vlrft import register

try:
    register()
except ValueError as error:  # what is wrong with the command or its data, without a traceback
    sys.exit(f"swift-vlrft: {error}")
