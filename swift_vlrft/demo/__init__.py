"""`make demo` is a real ms-swift GRPO run that learns in minutes on a CPU."""
