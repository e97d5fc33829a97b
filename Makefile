# Everything a person or a machine does with this project. `make help` lists it.
# Needs Python 3.11+ with venv, git and make; everything else is installed into .venv, pinned and hashed.

PYTHON ?= python3
BIN := .venv/bin
RUN_FLAGS := $(if $(READ_ONLY),--read-only) $(if $(GATEWAY_PORT),--gateway-port $(GATEWAY_PORT)) \
	$(if $(CONSOLE_PORT),--console-port $(CONSOLE_PORT)) $(if $(NAMESERVER_PORT),--nameserver-port $(NAMESERVER_PORT)) \
	$(if $(REMOTING_PORT),--remoting-port $(REMOTING_PORT))
# Ports 8080, 9876 and 10911 are not asked for: where one is taken, the services go without it and say so.
RUN_PORTS := $(if $(GATEWAY_PORT)$(REPUT_GATEWAY_ADDRESS),,GATEWAY_PORT=8081) \
	$(foreach name,GATEWAY_PORT CONSOLE_PORT NAMESERVER_PORT REMOTING_PORT,$(if $($(name)),$(name)=$($(name))))
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-compile
# pip compiles one file after the other, and the tests of libraries, too. A file that is no Python is left out.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x /tests/ .venv/lib || true

BUILDER ?= docker
TARGET ?= reput
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

HELM ?= $(firstword $(wildcard .tools/control-plane/bin/helm) helm)

.DEFAULT_GOAL := help
.PHONY: help setup run free-ports kernels test torture fuzz check coverage proto docs bench profile simulate histories soak freeze image chart wheels ci clean lock

# Test files run side by side; each file stays in one process, and one is worth about half a core.
JOBS ?= 5
# Two of these run torture until it is done, which waits for most of its time. With three others a third of two cores had nothing to do;
# more than four keep them busy for longer than Spark's workers wait (10 s).
CI_JOBS ?= 6
PYTEST := $(BIN)/python -m pytest -n $(JOBS) -p tests.support.scheduling -p tests.support.collecting
# A test starts hundreds of Pythons: none of them is to compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
# In CI a few that fail are run once more, alone, and named.
AGAIN := $(if $(CI),|| $(BIN)/python -m tests.support.once_more $$?)
NO_SKIPS := -p tests.support.no_skips
# What needs more than Python, or long: `make ci` has it. KUBERNETES= leaves out what needs a control plane to be built.
KUBERNETES ?= kubernetes
MARKED := bench or browser or cluster or containers or etcd or languages or life or long or models or newcomers or prometheus or rocketmq or spark
# The files that have such tests: to collect all files takes as long as a short suite.
space := $(subst ,, )
MARKED_FILES = $(shell grep -lrE --include='test_*.py' \
	'mark\.($(subst $(space)or$(space),|,$(MARKED) or grpcurl or kubernetes))\b|tests\.support\.seeds' tests)
# A change gets a bounded part of each kind; a release gets all of it, and longer: `make ci FULL=1`.
FOR_A_CHANGE := $(if $(FULL),,and not release)

# What `make coverage` measures (pyproject.toml, [tool.coverage]); with COVERAGE=1 the tests that run anyway are measured.
COVERED := store/format store/walk store/derive gateway/queries
MEASURED := $(if $(COVERAGE),-p tests.support.measuring)

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'
	@echo '  make run STORE=dir [READ_ONLY=1] [GATEWAY_PORT=n] [CONSOLE_PORT=n] [NAMESERVER_PORT=n] [REMOTING_PORT=n] serves a store root,'
	@echo '    also one that RocketMQ wrote; n may be off, but not of the gateway'

setup: .venv/.setup-dev ## Make .venv with all that running, testing and checking need

run: free-ports $(if $(wildcard .venv/.setup-dev),.venv/.setup-dev,.venv/.setup-serve) ## Serve the sample messages, or STORE=dir, until Ctrl-C
	@exec $(BIN)/reput demo --store "$(or $(STORE),run/store)" $(RUN_FLAGS)

free-ports:
	@$(PYTHON) tools/free_ports.py $(RUN_PORTS)

kernels: .venv/.setup-dev
	@$(BIN)/python -m deploy.build_kernels

test: kernels ## Run the tests, or those of one room: [ROOM=gateway] [ROOM=torture] (a sample); `make ci` has the longer kinds
	$(if $(COVERAGE),$(BIN)/python -m coverage erase)
	$(PYTEST) $(MEASURED) $(if $(ROOM),$(ROOM:%=tests/%),--ignore tests/torture) -m "not ($(MARKED) or kubernetes or release)" \
		$(if $(AGAIN),$(AGAIN) $(MEASURED))
	$(if $(COVERAGE),$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report)

torture ci: export TORTURE_LEVEL = $(if $(FULL),full,change)
# One seed for all tests of a run, so that one that failed is run again as it was.
torture ci: export TORTURE_SEED := $(or $(SEED),$(if $(CI),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')))
torture ci: export TORTURE_COUNT = $(COUNT)
torture: .venv/.setup-dev ## Kills, cuts, damage and full disks, for each change; FULL=1 [COUNT=n] for a release, SEED=n replays
	$(PYTEST) $(NO_SKIPS) $(if $(FULL),--timeout 43200) tests/torture $(if $(AGAIN),$(AGAIN) $(NO_SKIPS))

fuzz: .venv/.setup-dev ## Fuzzing by coverage, for hours: [TARGETS="sql cel"] [SECONDS=600] [JOBS=2]; what it finds is in .fuzz/finds
	PYTHONPATH=.:protos $(BIN)/python -m tests.torture.fuzz $(TARGETS) --seconds $(or $(SECONDS),600) --jobs $(or $(JOBS),2) \
		--corpus .fuzz/corpus

check: .venv/.setup-dev ## Style, types, floors, protos: lint, fresh and compatible
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/proto.py --check
	$(BIN)/python -m tools.settings_table --check
	$(BIN)/python -m tools.docs_pages --check
	$(BIN)/buf lint
	$(BIN)/python tools/proto_breaking.py

coverage: ## Every branch of the pure rooms runs in their own tests: store/{format,walk,derive}, gateway/queries; or `make test COVERAGE=1`
	@$(MAKE) test COVERAGE=1 ROOM="$(COVERED)"

proto: .venv/.setup-dev ## Generate the protobuf code and the API reference from protos/
	$(BIN)/python tools/proto.py
	$(BIN)/python -m tools.docs_pages

docs: .venv/.setup-dev ## The documentation as one page with a search, dist/docs.html
	$(BIN)/python -m tools.docs_search

bench: .venv/.setup-dev ## The speed table beside the real RocketMQ (about 45 min): [ROWS=1,2,T5] [ROUNDS=3] [FULL=1]
	$(BIN)/python -m benchmarks $(if $(ROWS),--rows $(ROWS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(FULL),--full) \
		$(if $(STORES),--stores $(STORES))

profile: kernels ## Flame graphs of the hot paths, into docs/profiles: [PATHS=append_stream,pop] [SECONDS=20]
	$(BIN)/python -m benchmarks.profile $(if $(PATHS),--paths $(PATHS)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(DIRECTORY),--directory $(DIRECTORY))

histories: .venv/.setup-dev ## The real code in a simulated world, history by history: [WORLD=consumers|waiting] [MINUTES=60] SEED=n replays one
	$(BIN)/python -m tests.simulation $(or $(WORLD),replicas) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

soak: .venv/.setup-dev ## Three replicas with everything on, killed and upgraded under load: [MINUTES=120] [SEED=n] [BEFORE=0.2.0|today] [REPORT=soak.md]
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(BEFORE),--before $(BEFORE)) \
		$(if $(REPORT),--report $(REPORT))

simulate: .venv/.setup-dev ## Model 1 to 1,000 shards over the gateway's own code, for docs/scale.md: [MEASURE=1] this machine's latencies
	$(BIN)/python -m benchmarks.simulate $(if $(MEASURE),--measure)

freeze: .venv/.setup-dev ## Keep a release for later ones to be tested with: VERSION=0.3.0 [COMMIT=HEAD]
	$(BIN)/python -m tests.releases.freeze $(VERSION) $(COMMIT)

# Docker builds for several platforms with buildx and pushes at once; podman collects them in a manifest of that name.
IMAGE = $(if $(REGISTRY),$(REGISTRY)/)$(if $(filter serve,$(TARGET)),reput-serve,reput):$(VERSION)
image: ## Build the image: [TARGET=serve] without Spark, [BUILDER=podman] [PYTHON_IMAGE=name@sha256:...] [PLATFORMS=linux/amd64,linux/arm64 REGISTRY=...]
	$(BUILDER) $(if $(PLATFORMS),$(if $(filter docker,$(notdir $(BUILDER))),buildx build --push,build --jobs 1) --platform $(PLATFORMS),build) \
		-f deploy/Dockerfile --target $(TARGET) $(if $(PYTHON_IMAGE),--build-arg PYTHON_IMAGE=$(PYTHON_IMAGE)) \
		--label org.opencontainers.image.version=$(VERSION) \
		--label org.opencontainers.image.revision=$(shell git rev-parse HEAD 2>/dev/null) \
		--label org.opencontainers.image.created=$(shell date -u +%Y-%m-%dT%H:%M:%SZ) \
		$(if $(and $(PLATFORMS),$(filter-out docker,$(notdir $(BUILDER)))),--manifest,-t) $(IMAGE) .

chart: ## Package the Helm chart into dist/, and push it: [REGISTRY=registry.example.org/charts]
	mkdir -p dist
	$(HELM) package deploy/helm/reput --destination dist
	$(if $(REGISTRY),$(HELM) push dist/reput-$(VERSION).tgz oci://$(REGISTRY))

wheels: .venv/.setup-dev ## Build the distributions `reput` and `reput-client` into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build --target wheel --directory $(CURDIR)/dist
	cd distributions/reput-client && $(CURDIR)/$(BIN)/python -m hatchling build --target wheel --directory $(CURDIR)/dist

ci: export LIFE_SECONDS := $(or $(LIFE_SECONDS),$(if $(FULL),600,30))
# One run: torture waits for most of its time, and the marked suites compute meanwhile (tests/support/scheduling.py).
ci: .venv/.setup-dev ## The marked suites (real RocketMQ, browser, Kubernetes, ...) and torture; FULL=1 for a release; none is skipped
	$(PYTEST) -n $(CI_JOBS) $(NO_SKIPS) $(if $(FULL),--timeout 43200) --durations=25 \
		-m "($(MARKED) or grpcurl$(if $(KUBERNETES), or kubernetes) or torture) $(FOR_A_CHANGE)" $(MARKED_FILES) tests/torture \
		$(if $(AGAIN),$(AGAIN) $(NO_SKIPS))

lock: .venv/.setup-dev ## Pin and hash what pyproject.toml asks for (needs uv)
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url \
		pyproject.toml --extra avro --extra pipeline --extra plain-acl --extra table --group dev -o requirements/dev.txt
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url \
		pyproject.toml -c requirements/dev.txt -o requirements/serve.txt
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url \
		pyproject.toml --extra pipeline -c requirements/dev.txt -o requirements/pipeline.txt
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url \
		--group compiler -o requirements/compiler.txt

clean: ## Remove the environment, the caches and the sample store
	rm -rf .venv run dist .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv

.venv/.setup-serve: requirements/serve.txt pyproject.toml tools/install_project.py | .venv/bin/python
	$(PIP_INSTALL) -r requirements/serve.txt
	@$(COMPILE)
	$(BIN)/python tools/install_project.py
	-$(BIN)/python -m deploy.build_kernels
	@touch $@

.venv/.setup-dev: requirements/serve.txt requirements/dev.txt pyproject.toml tools/install_project.py | .venv/bin/python
	$(PIP_INSTALL) -r requirements/dev.txt
	@$(COMPILE)
	$(BIN)/python tools/install_project.py
	-$(BIN)/python -m deploy.build_kernels
	@touch $@ .venv/.setup-serve
