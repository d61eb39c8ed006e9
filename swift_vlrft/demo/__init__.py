"""Trials are real ms-swift runs that learn in minutes on a CPU, of own data or drawn data."""
