# Everything that is done with this repository. `make` alone lists the targets.
# Settings are given on the command line: `make image IMAGE=registry.example/yolov9:1 CUDA=cuda12 WEIGHTS=yolov9-s`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first Python that is new enough.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
    $(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV ?= .venv
DOCKER ?= docker
IMAGE ?= yolov9:latest
BASE_IMAGE ?= debian:bookworm-slim
CUDA ?= cuda13
WEIGHTS ?= none
WEIGHTS_URL ?=
# Further options of `docker build`, such as --network=host.
BUILD_OPTIONS ?=
# `make lock UPGRADE=--upgrade` takes newer versions.
UPGRADE ?=
# Options of pytest: `make test PYTEST="-k loader -x"`.
PYTEST ?=
BENCH ?=

PY := $(VENV)/bin/python
LOCKS := cuda13 cuda12 test lint tools sbom
DEMO_CACHE := build/demo-data
DEMO_RUN := runs/train/demo

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the virtual environment: made once, and again when a lock file changes -------------------------------------------

# pip and not uv: pip also takes wheels from indexes on this machine's disk, where its settings name some.
$(VENV)/ready: env/cuda13.lock env/test.lock
	@test -n "$(PYTHON)" || { echo 'make: needs Python 3.11 or newer: apt-get install python3 python3-venv' >&2; exit 1; }
	@test -x $(PY) || { rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) >/dev/null 2>&1; } \
	    || { rm -rf $(VENV) && $(PYTHON) -m virtualenv --quiet $(VENV) 2>/dev/null; } \
	    || { rm -rf $(VENV); echo 'make: $(PYTHON) has no venv module: apt-get install python3-venv' >&2; exit 1; }
	@echo 'Installing PyTorch and the other packages of env/*.lock into $(VENV): 6 GB, some minutes, once.'
	@$(PY) -m pip install -qq --require-hashes -r env/cuda13.lock -r env/test.lock
	@touch $@

$(VENV)/lint-ready: env/lint.lock $(VENV)/ready
	@$(PY) -m pip install -qq --require-hashes -r env/lint.lock
	@touch $@

# --- without Docker -----------------------------------------------------------------------------------------------------

# --conf 0.1: after so short a training the network is right more often than it is sure.
.PHONY: demo
demo: export YOLOV9_CACHE_DIR := $(DEMO_CACHE)
demo: $(VENV)/ready ## train on a drawn data set (no GPU needed) and detect in one of its pictures
	$(PY) -m entrypoint train --cfg yolov9-t --img 160 --epochs 10 --batch 8 --optimisation-batch 8 --close-mosaic 3 \
	    --cache ram --name demo --exist-ok
	$(PY) -m entrypoint detect --weights $(DEMO_RUN)/weights/best.pt --img 160 --name demo --exist-ok --conf 0.1 \
	    --source "$$(ls -t $(DEMO_CACHE)/datasets/*/images/val/0000.jpg | sed -n 1p)"
	@echo 'Annotated picture: $(CURDIR)/runs/detect/demo/0000.jpg'

.PHONY: test
test: $(VENV)/ready ## run the tests; says which ones this machine cannot run, and why
	$(PY) -m pytest $(PYTEST)

.PHONY: chaos
chaos: $(VENV)/ready ## kill 200 trainings and break the disk under 200 more (half an hour)
	$(PY) -m pytest tests/cli/chaos --chaos-runs 200 $(PYTEST)

.PHONY: bench-step
bench-step: $(VENV)/ready ## time the training step of each model on synthetic data: BENCH="--models yolov9-s --batches 16 64"
	$(PY) -m yolov9.engine.bench_step $(BENCH)

.PHONY: lint
lint: $(VENV)/lint-ready ## check style, types, the Dockerfile and the shell scripts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --strict env/fetch_weights.py
	$(VENV)/bin/mypy --strict env/sbom.py
	$(VENV)/bin/hadolint Dockerfile
	$(VENV)/bin/shellcheck .ci/run .ci/second-kernel env/conda

.PHONY: sbom
sbom: $(VENV)/ready ## list the packages of the image with their licences: build/sbom.json (CycloneDX), build/licences.txt
	@test -x build/sbom/bin/cyclonedx-py || { $(PY) -m venv build/sbom \
	    && build/sbom/bin/python -m pip install -qq --require-hashes -r env/sbom.lock; }
	@build/sbom/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml -o build/all.json $(PY)
	@$(PY) env/sbom.py build/all.json env/cuda13.lock build

.PHONY: lock
lock: $(VENV)/ready ## make env/*.lock again from env/*.in
	@$(PY) -m pip install -qq --require-hashes -r env/tools.lock
	@for name in $(LOCKS); do $(VENV)/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	    --custom-compile-command 'make lock' $(UPGRADE) env/$$name.in -o env/$$name.lock; done

# --- with Docker --------------------------------------------------------------------------------------------------------

.PHONY: engine
engine:
	@$(DOCKER) buildx version >/dev/null 2>&1 && $(DOCKER) compose version >/dev/null 2>&1 \
	    && $(DOCKER) info >/dev/null 2>&1 || { echo 'make: no Docker engine answers: install docker-ce,' \
	    'docker-buildx-plugin and docker-compose-plugin (Docker 23 or newer), and start it' >&2; exit 1; }

.PHONY: image
image: engine ## build the image
	$(DOCKER) build --tag $(IMAGE) --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg CUDA=$(CUDA) \
	    --build-arg WEIGHTS=$(WEIGHTS) --build-arg WEIGHTS_URL=$(WEIGHTS_URL) \
	    --build-arg VERSION=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' yolov9/__init__.py) \
	    --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) \
	    --build-arg CREATED=$$(date --utc +%Y-%m-%dT%H:%M:%SZ) $(BUILD_OPTIONS) .

.PHONY: smoke
smoke: image $(VENV)/ready ## build the image and test it in real containers
	YOLOV9_TEST_IMAGE=$(IMAGE) $(PY) -m pytest tests/container $(PYTEST)

.PHONY: clean
clean: ## remove the virtual environment, caches and demo data; runs/ stays
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
