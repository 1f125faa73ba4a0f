# `make demo` and `make test` set up what they need, in .venv. What the tests build for a Kubernetes of their own lies in
# ~/.cache/ddplaunch, for the next time; nothing else outside the repository is changed.

SHELL := /bin/bash
VENV := .venv
READY := $(VENV)/.ready
READY39 := .venv39/.ready
READYSITE := .venv-site/.ready
WITHTORCH := $(if $(TORCH),.venv-torch-$(TORCH),$(VENV))
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-kubernetes test-all faults corpus chaos fuzz lint format bench docs site site-serve chart lock clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

demo: $(READY)  ## a job that trains on this machine, then a broken one, explained
	@scripts/demo

test:  ## lint, then a test of each behaviour, on a real Slurm and a real Kubernetes too: half an hour on two cores
	@scripts/system-packages
	@scripts/go-toolchain
	@scripts/run-tests lint agent39 quick processes slow slurm transparent corpus seeds kubernetes

test-quick: $(READY)  ## unit, agent and golden tests: two to three minutes on two cores
	@scripts/run-tests quick

test-kubernetes: $(READY)  ## jobs on a real Kubernetes, which is built and started first
	@scripts/system-packages
	@scripts/go-toolchain
	@scripts/run-tests kubernetes

# What takes longest comes last. Here no test may be unstable.
test-all: $(READY) .venv-torch-2.4.1/.ready  ## every test, on every backend, controllers of others and 500 nodes among them: hours
	@scripts/system-packages all
	@scripts/go-toolchain
	@UNSTABLE=0 scripts/run-tests lint agent39 quick processes slow slurm transparent corpus seeds kubernetes whole \
	    releases kubernetes-1.35 oldtorch extras

faults: $(READY)  ## provoke every fault RUNS times (5), on BACKEND (all), WHERE=gate or run: docs/reference/faults.md
	@scripts/system-packages
	@scripts/go-toolchain
	@code=0; python -m tests.faults $(if $(RUNS),--runs $(RUNS)) $(if $(BACKEND),--backend $(BACKEND)) \
	    $(if $(WHERE),--where $(WHERE)) || code=$$?; \
	    python scripts/generate-docs && exit $$code

corpus: $(WITHTORCH)/.ready  ## every program of the corpus RUNS times (3), ONLY some, with another TORCH (2.4.1 to 2.12.0: requirements/torch-*.txt), PEERS=1, NCCL=1 on a GPU
	@code=0; $(WITHTORCH)/bin/python -m tests.corpus $(if $(RUNS),--runs $(RUNS)) $(if $(ONLY),--only $(ONLY)) \
	    $(if $(PEERS),--peers) $(if $(NCCL),--nccl) || code=$$?; \
	    python scripts/generate-docs && exit $$code

chaos: $(READY)  ## RUNS random jobs (20) on BACKEND (local), each hit at random; SEED repeats: docs/reference/chaos.md
	@scripts/system-packages
	@code=0; python -m tests.chaos $(if $(RUNS),--runs $(RUNS),$(if $(SEED),--runs 1)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(BACKEND),--backend $(BACKEND)) || code=$$?; \
	    python scripts/generate-docs && exit $$code

fuzz: $(READY)  ## INPUTS broken and hostile inputs (10000), to TARGET (all); SEED= repeats one of a TARGET
	@python -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS)) $(if $(TARGET),--target $(TARGET)) \
	    $(if $(SEED),--seed $(SEED))

lint: $(READY)  ## ruff, mypy, import-linter, shellcheck
	@scripts/lint

format: $(READY)  ## let ruff rewrite the sources
	ruff check --fix .
	ruff format .

bench: $(READY)  ## the ratios of benchmarks/
	python benchmarks/run.py

docs: $(READY)  ## the generated parts of docs/
	python scripts/generate-docs

site: $(READYSITE)  ## docs/ as a site in build/site, in which every link is checked
	@rm -rf build/site build/site-doctrees
	@.venv-site/bin/sphinx-build --builder html --fail-on-warning --keep-going --quiet \
	    --doctree-dir build/site-doctrees docs build/site
	@.venv-site/bin/python scripts/check-site build/site

site-serve: site  ## the site on http://127.0.0.1:PORT (8000), until Ctrl-C
	@.venv-site/bin/python -m http.server --bind 127.0.0.1 --directory build/site $(or $(PORT),8000)

chart: $(READY)  ## the Helm chart with the agent in it, as build/charts/*.tgz
	@python scripts/package-chart

lock: $(READY)  ## resolve pyproject.toml and requirements/*.in; the SBOM of the wheel
	@scripts/lock
	@$(MAKE) --silent $(READY) && scripts/generate-sbom

clean:  ## remove whatever was made here
	rm -rf $(VENV) .venv39 .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): requirements/dev.txt requirements/uv.txt pyproject.toml
	@scripts/make-venv $(VENV) "$$(scripts/find-python)" requirements/dev.txt requirements/uv.txt
	@uv pip install --quiet --python $(VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

# Without Python 3.9 the agent's tests on it are left out, with the reason; CI may not leave them out.
$(READY39): requirements/agent39.txt $(READY)
	@if python=$$(scripts/find-python39); then \
	    scripts/make-venv .venv39 "$$python" requirements/agent39.txt && touch $@; \
	elif [ "$(CI)" = true ]; then \
	    exit 1; \
	fi

# An older torch to measure with. For another version, copy a requirements/torch-*.in, and run `make lock`.
.venv-torch-%/.ready: requirements/torch-%.txt $(READY)
	@scripts/make-venv .venv-torch-$* "$$(scripts/find-python)" requirements/torch-$*.txt
	@uv pip install --quiet --python .venv-torch-$*/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

$(READYSITE): requirements/site.txt requirements/uv.txt
	@scripts/make-venv .venv-site "$$(scripts/find-python)" requirements/site.txt
	@touch $@
