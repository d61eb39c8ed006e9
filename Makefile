# make demo    a real GRPO run that learns in minutes, no GPU      (TASK=colours|detection|digits)
# make test    format, types, unit and end-to-end tests
# Both set up .venv by themselves; `make env` does only that. With PYTHON=3.13 (or 3.11, 3.12, a path)
# it is an environment of that Python, .venv-3.13; else of 3.11, or of python3 where that is not there.

VENV := .venv$(addprefix -,$(notdir $(PYTHON)))
PY := $(VENV)/bin/python
TASK ?= colours
FUZZ_SECONDS ?= 300
export PATH := $(abspath $(VENV))/bin:$(PATH)
# Containers often forbid bytecode; then every process compiles torch, vLLM and ms-swift anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: env demo test fuzz format clean
env: $(VENV)/ready

# uv where it is at hand, else from its package into a small environment of its own.
$(VENV)/ready: requirements/cpu.txt requirements/override.txt pyproject.toml
	@command -v uv >/dev/null || test -x .uv/bin/uv || { python3 -m venv .uv && .uv/bin/pip install -q uv; }
	@set -e; UV=$$(command -v uv || echo .uv/bin/uv); \
	test -x $(PY) || $$UV venv -q --python $(or $(PYTHON),3.11) $(VENV) $(if $(PYTHON),,2>/dev/null || $$UV venv -q --python python3 $(VENV)); \
	echo "installing requirements/cpu.txt into $(VENV) (about 7 GB, a minute or more) ..."; \
	DS_BUILD_OPS=0 $$UV pip install -q --python $(PY) --override requirements/override.txt -r requirements/cpu.txt; \
	$$UV pip install -q --python $(PY) --no-deps --no-build-isolation -e .; \
	touch $@

demo: env
	@vlrft demo --task $(TASK)

test: env
	ruff format --check .
	ruff check .
	mypy
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -m "not end_to_end" -n 2 --dist worksteal
	OMP_NUM_THREADS=1 $(PY) -m pytest -v -m end_to_end --durations=0 -n 2

fuzz: env
	$(PY) tests/fuzz_rewards.py --seconds $(FUZZ_SECONDS)

format: env
	ruff format .
	ruff check --fix .

clean:
	rm -rf runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
