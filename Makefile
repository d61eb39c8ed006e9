# make demo    a real GRPO run that learns in minutes, no GPU
# make check   format, types and the quick unit tests: after every change
#              (of one folder: make check ROOM=rewards)
# make dist    sdist and wheel into dist/, checked as PyPI and pip look at them
# make test    also the slow unit tests, and a real run of every way of training and family
# make nightly the rest: recipes of every family, storms of faults, other trainers, hubs, two nodes, changed sets
# make docs    the documentation site, into runs/site; any warning is an error
# All set up .venv by themselves; `make env` does only that. With PYTHON=3.13 (or 3.11, 3.12, a path)
# it is an environment of that Python, .venv-3.13; else of 3.11, or of python3 where that is not there.

VENV := .venv$(addprefix -,$(notdir $(PYTHON)))
PY := $(VENV)/bin/python
export PATH := $(abspath $(VENV))/bin:$(PATH)
# Containers often forbid bytecode; then every process compiles torch, vLLM and ms-swift anew.
unexport PYTHONDONTWRITEBYTECODE

# What a test is allowed to use is one core; two run at a time, and none waits behind a long one.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2

.PHONY: env demo docs style check test nightly dist format clean
env: $(VENV)/ready

# uv where it is at hand, else from its package into a small environment of its own. Of pyenv's
# Pythons, PATH has only those that are chosen: uv is shown all.
$(VENV)/ready: requirements/cpu.txt requirements/override.txt pyproject.toml
	@command -v uv >/dev/null || test -x .uv/bin/uv || { python3 -m venv .uv && .uv/bin/pip install -q uv; }
	@set -e; UV=$$(command -v uv || echo .uv/bin/uv); \
	PATH="$$PATH$$(printf ':%s' $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.1[1-9]*/bin)"; \
	test -x $(PY) || $$UV venv -q --python $(or $(PYTHON),3.11) $(VENV) $(if $(PYTHON),,2>/dev/null || $$UV venv -q --python python3 $(VENV)); \
	echo "installing requirements/cpu.txt into $(VENV) (about 7 GB, a minute or more) ..."; \
	DS_BUILD_OPS=0 $$UV pip install -q --python $(PY) --override requirements/override.txt -r requirements/cpu.txt; \
	$$UV pip install -q --python $(PY) --no-deps --no-build-isolation -e .; \
	touch $@

demo: env
	@vlrft demo

# Never with -q: mkdocs then counts no warnings.
docs: env
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo runs/site/index.html

style: env
	ruff format --check .
	ruff check .
	mypy
	hadolint containers/*.Dockerfile
	check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml
	zizmor -q --offline .github/workflows

check: style
	$(PYTEST) -q -m "not slow and not end_to_end and not nightly" --dist worksteal $(if $(ROOM),tests/$(ROOM))

test: style
	$(PYTEST) -q -m "not end_to_end and not nightly" --durations=20 --dist worksteal
	$(PYTEST) -v -m "end_to_end and not nightly" --durations=20 --dist loadgroup

nightly: env
	$(PYTEST) -v -rs -m nightly --durations=20 --dist loadgroup

# With TAG=v0.2.0 it also asks whether version and changelog say the same.
dist: env
	@V=$$($(PY) -c 'import swift_vlrft; print(swift_vlrft.__version__)'; ); \
	test -z "$(TAG)" || { test "$(TAG)" = "v$$V" && grep -q "^## $$V" CHANGELOG.md; } || { \
	echo "tag $(TAG), but swift_vlrft/__init__.py says $$V or CHANGELOG.md has no heading '## $$V'"; exit 1; }
	rm -rf dist
	$(PY) -m build --no-isolation .
	twine check --strict dist/*
	check-wheel-contents dist/*.whl

format: env
	ruff format .
	ruff check --fix .

clean:
	rm -rf runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
