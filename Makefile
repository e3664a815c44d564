# `make` alone prints what there is. CI calls only these targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo console up down run watch build unit it check clean lint test model mutants chaos chaos-cluster api-fuzz accessibility compat audit bench bench-isolation volume pictures package package-check images images-check compose-check deploy-check toolchain
# Where rustup puts cargo, for shells that have not sourced its settings.
export PATH := $(PATH):$(HOME)/.cargo/bin

STACK := deploy/local/stack
WITH_STACK := deploy/local/with-stack
BUILD_TO_MEASURE := cargo build --release -p api-service -p event-ingest -p dispatcher -p webhookctl -p programs \
  --bin api-service --bin event-ingest --bin dispatcher --bin webhookctl --bin bench
SCRIPTS := $(STACK) $(WITH_STACK) deploy/local/cluster deploy/local/run deploy/local/watch deploy/local/api-fuzz deploy/local/tools deploy/local/it deploy/local/compat deploy/local/lib/in-root deploy/local/package deploy/local/package-check deploy/local/deploy-check deploy/local/images deploy/local/compose deploy/local/audit deploy/images/base deploy/compose/prepare deploy/local/stand-ins/postgres deploy/local/stand-ins/rabbitmq .ci/run
# The programs of the service. All builds name the workspace, so that libraries keep their features.
SERVICES := --workspace --bin api-service --bin event-ingest --bin dispatcher --bin webhookctl
TOOLS := python node go php chromium prometheus pgbouncer
# The test programs; a test of the repository compares this list with what there is.
WITHOUT_SERVERS := workspace start it memory wiped ops process settings
ON_SERVERS := outages service tools real
# End-to-end tests at the same time. More of them wait for each other on two cores.
THREADS ?= 6

help:
	@awk '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## /{split($$0, part, ":.*## "); printf "  make %-17s %s\n", part[1], part[2]}' $(MAKEFILE_LIST)

##@ Try

demo: toolchain ## Show the whole service at work, from nothing, and leave nothing running
	@$(WITH_STACK) $(SHELL) -euc 'echo "building (the first time takes minutes)..."; \
	  cargo build -q $(SERVICES) --bin demo; target/debug/demo'

console: toolchain ## Open the administrators' console with a tenant full of life, and print the link, until Ctrl-C
	@$(WITH_STACK) $(SHELL) -euc 'echo "building (the first time takes minutes)..."; \
	  cargo build -q --workspace --bin life; exec target/debug/life'

up: ## Start private PostgreSQL and RabbitMQ (installed if missing) and write .local/env
	@$(STACK) up

down: ## Stop them; their data stays
	@$(STACK) down

run: up build ## Run the three services in the foreground until Ctrl-C (DISPATCHERS=1)
	@deploy/local/run

watch: ## Watch them by Prometheus with the operators' alerts (installed if missing), until Ctrl-C
	@deploy/local/watch

##@ Develop

build: toolchain ## Build the services and tools
	cargo build $(SERVICES)

unit: toolchain ## Run the tests that need no server: of each crate's decisions, and of the repository
	@cargo test --workspace --no-fail-fast --lib --bin webhookctl $(WITHOUT_SERVERS:%=--test %)
	@cargo test -p signing --doc

it: toolchain ## Run the end-to-end tests of a subject, or whose names contain T (make it T=retries); the servers stay up
	@$(STACK) up >/dev/null
	@RUST_TEST_THREADS=$(THREADS) deploy/local/it '$(T)'

check: toolchain ## Check what changed with clippy
	@cargo clippy --workspace --all-targets -- -D warnings

clean: ## Stop the stack and remove its data and everything built
	@$(STACK) destroy
	@if command -v cargo >/dev/null; then cargo clean; else rm -rf target; fi

##@ Check

lint: toolchain ## Check format, clippy, documentation and scripts
	@deploy/local/tools shellcheck
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
	@[[ " $${SKIP:-} " =~ [\ ,]shellcheck[\ ,] ]] || shellcheck -x -a $(SCRIPTS)

test: toolchain ## Run every test on real servers (SKIP='chromium php' leaves out what needs these tools)
	@deploy/local/tools $(TOOLS)
	@rm -rf target/tests
	@$(MAKE) --no-print-directory unit
	@RUST_TEST_THREADS=$(THREADS) $(WITH_STACK) deploy/local/it --programs $(ON_SERVERS)

model: toolchain ## Try every interleaving of the services' steps in the large configurations of tests/model
	@cargo run -q -p model

mutants: toolchain ## Change the decisions of domain and signing in every way that unit tests must notice (20 minutes)
	@cargo mutants --version >/dev/null 2>&1 || { echo "cargo-mutants is missing: cargo install cargo-mutants --locked" >&2; exit 1; }
	@mkdir -p target/mutants
	CARGO_PROFILE_DEV_DEBUG=0 PROPTEST_CASES=16 cargo mutants -p domain -p signing -j 1 --gitignore=true -C=--lib \
	  --timeout 60 -o target/mutants

chaos: toolchain ## Run a storm of faults and audit what came of it (SEED=n SECONDS=180 RATE=40)
	cargo build $(SERVICES) --bin chaos
	@target/debug/chaos "$(SEED)" "$(SECONDS)" "$(RATE)"

chaos-cluster: toolchain ## The same on three brokers and a database with a standby (SEED=n SECONDS=250 RATE=20; best as root)
	cargo build $(SERVICES) --bin chaos
	@target/debug/chaos "$(SEED)" "$(SECONDS)" "$(RATE)" cluster

api-fuzz: toolchain ## Run schemathesis over the whole API, and fail on any answer that is not described
	@$(WITH_STACK) $(SHELL) -euc 'cargo build $(SERVICES); deploy/local/api-fuzz'

accessibility: toolchain ## Let axe-core judge every page of the console, in both themes, wide and narrow
	@SKIP= deploy/local/tools chromium axe
	@SKIP= $(WITH_STACK) $(SHELL) -euc 'AXE_CORE=$${STACK_DIR:-$$PWD/.local}/axe/node_modules/axe-core/axe.min.js \
	  deploy/local/it console::pictures'

compat: toolchain ## Test on RabbitMQ 4 and PostgreSQL 17, as root, and write what passed (make compat ARGS='demo retries storm' runs parts)
	@deploy/local/compat $(ARGS)

audit: toolchain ## Check all dependencies' licences and sources, and write what each program consists of to target/audit
	@deploy/local/audit

##@ Measure

bench: toolchain ## Measure, and write target/bench/report.json (make bench ARGS='latency memory' measures parts)
	@$(BUILD_TO_MEASURE)
	@target/release/bench $(ARGS)

bench-isolation: toolchain ## Measure what a hanging tenant does to a healthy one
	@$(BUILD_TO_MEASURE)
	@target/release/bench isolation

volume: toolchain ## Measure at volume, up to 75 minutes and 25 GB (make volume ARGS='calls deletion' VOLUME=0.1 measures parts, small)
	@$(BUILD_TO_MEASURE)
	@target/release/bench volume $(ARGS)

##@ Release

pictures: toolchain ## Write pictures of every screen of the console to target/console, and make those of the README anew
	@SKIP= deploy/local/tools chromium
	@SKIP= PICTURES=yes $(WITH_STACK) deploy/local/it console
	@cp target/console/webhooks-1200-light.png crates/console/pictures/webhooks.png
	@cp target/console/webhook-1200-dark.png crates/console/pictures/webhook.png

package: toolchain ## Make a Debian package of the services, their systemd units and the documentation, in target/package
	@deploy/local/package

package-check: toolchain ## Install the package in a Debian of its own, run what its units run, and purge it, as root
	@deploy/local/package-check

images: toolchain ## Build the container image around programs of cargo, with podman; pulls nothing
	cargo build --release --locked -p api-service -p event-ingest -p dispatcher -p webhookctl
	@deploy/local/images build

images-check: images ## Run it as strict orchestrators do: any user, no rights, read-only, SIGTERM (best as root)
	@$(WITH_STACK) deploy/local/images check

compose-check: images ## Bring up deploy/compose.yaml as a whole and deliver an event, as root; pulls nothing
	@deploy/local/compose

deploy-check: ## Check the Helm chart, its examples and the Containerfile
	@deploy/local/deploy-check

toolchain:
	@command -v cargo >/dev/null || { echo "Rust is missing: install the stable toolchain with rustup, then run make again" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing (Rust links with it): apt-get install gcc libc6-dev, then run make again" >&2; exit 1; }
