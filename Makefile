# The front door. `make` alone prints the verbs.
SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
SRC := engine server operator hack tests
CLUSTER ?= auto
export CLUSTER

.PHONY: help setup demo test lint types imports format crds crds-check unit spark-test cluster-up cluster-down cluster-status \
        cluster-test cluster-e2e image bench lock clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}'

setup: ## the virtual environment from requirements.lock, and Java 17+; nothing to do the second time
	@hack/setup/setup.sh all

demo: setup ## this machine's Python environment as a graph: load it, serve it, ask it (KEEP=1 leaves it serving)
	@$(PY) -m hack.demo $(if $(KEEP),--keep)

test: setup lint unit cluster-test ## everything: style, types, architecture, drift, tests (CLUSTER=auto|require|off)

lint: setup types imports crds-check
	@.venv/bin/ruff check -q $(SRC)
	@.venv/bin/ruff format -q --check $(SRC) || { echo "run: make format"; exit 1; }
	@.venv/bin/omnigraph fmt --check --quiet examples tests/data/lang/query || { echo "run: make format"; exit 1; }

types: setup
	@.venv/bin/mypy --no-error-summary engine server operator hack/demo

imports: setup
	@.venv/bin/lint-imports --no-logo 2>/dev/null | tail -20 || .venv/bin/lint-imports

format: setup ## ruff and omnigraph fmt: format and fix
	@.venv/bin/ruff format -q $(SRC)
	@.venv/bin/ruff check -q --fix $(SRC)
	@.venv/bin/omnigraph fmt --quiet examples tests/data/lang/query

crds: setup ## write crds/ from the models
	@$(PY) -m omnigraph_operator.model.crd --write

crds-check: setup
	@$(PY) -m omnigraph_operator.model.crd --check

unit: setup ## tests that need no cluster
	@$(PY) -m pytest -q -n 2 --dist loadfile -m "not cluster and not e2e" tests

cluster-up: setup ## a one-node Kubernetes with real pods (root and Go, or Docker); the first build takes about 8 minutes
	@$(PY) hack/cluster/cluster.py up

cluster-down: ## stop it, keep its images and logs
	@$(PY) hack/cluster/cluster.py down

cluster-status: ## its processes, memory and pods
	@$(PY) hack/cluster/cluster.py status

cluster-test: setup ## the operator's tests on the cluster (with CLUSTER=auto: only when one is up)
	@$(PY) -m pytest -q -m "cluster or e2e" tests/cluster

cluster-e2e: setup ## the whole way on real pods, once
	@CLUSTER=require $(PY) -m pytest -q -m e2e tests/cluster

image: setup ## the container image, without a registry, loaded into the cluster
	@$(PY) -m hack.image --load

bench: setup ## beside ladybug, kuzu, duckdb and lancedb: about 15 minutes (BENCH="--only point,hop1" for some of it)
	@$(PY) -m hack.bench $(BENCH)

lock: setup ## requirements.lock from pyproject.toml, and that of the benchmark's peers
	@.venv/bin/pip install -q --require-hashes -r hack/setup/uv.txt
	@.venv/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --all-extras --group dev \
	  --python-version 3.11 pyproject.toml -o requirements.lock
	@.venv/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  hack/bench/requirements.in -o hack/bench/requirements.txt

clean: ## what builds and runs left behind; not .venv
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache examples/python-env/.omnigraph \
	  examples/python-env/data examples/python-env/*.omni
