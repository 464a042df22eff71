# SPDX-License-Identifier: Apache-2.0
#
# The front door: `make` lists what there is. Each target does its own set-up on a fresh checkout
# (virtual environment, locked packages, extension module, Java), once.

PYTHON ?= python3
# Options of `make bench-compare`, such as --plan or "--peers daft,flink_java"; `--help` lists them.
ARGS ?=
# Seconds that `make fuzz` takes for each target, and which they are.
T ?= 60
TARGETS ?= $(basename $(notdir $(wildcard rust/fuzz/fuzz_targets/*.rs)))
SHELL := $(if $(CI),tools/timed-shell,bash)
.SHELLFLAGS = $(if $(CI),$@) -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --require-hashes --no-compile
EXTENSION := python/sparkawait/_core.abi3.so
RUST_SOURCES := Cargo.toml Cargo.lock pyproject.toml \
	$(shell find rust \( -name '*.rs' -o -name '*.toml' \) -not -path '*/tests/*' -not -path 'rust/fuzz/*')

# Workers of Spark find the same Python and the modules of tests.
export PYTHONPATH := $(CURDIR)

# Hundreds of Pythons import the package and what it needs: what one has compiled, the others find.
export PYTHONDONTWRITEBYTECODE :=

# PySpark comes as source, and pip makes a wheel of it first: 400 MB of jars, which need not be
# compressed again.
export DIST_EXTRA_CONFIG := $(CURDIR)/requirements/setuptools.cfg

# What `make bench-compare` measures beside sparkawait, each with packages of its own.
COMPARED := $(shell sed -n 's/^\(compare-[a-z]*\) = .*/\1/p' pyproject.toml)

# The scenarios of `make simulate`.
SEEDS ?= 0..10000

# The benches that take time; the others count instructions.
TIMED := $(filter-out instructions_%,$(basename $(notdir $(wildcard benches/rust/benches/*.rs))))
COUNTS := target/instructions

# The crates that have tests. What benches are made with gives other crates more features, and those
# would be compiled once for the tests and once more for the extension module.
TESTED := --workspace --exclude sparkawait-benches

# Where Clippy is the compiler, to compile is to check. The benches are left out then, for the same reason.
ifeq ($(RUSTC_WORKSPACE_WRAPPER),clippy-driver)
CLIPPY := MAKEFLAGS= cargo test $(TESTED) --no-run --locked --quiet
else
CLIPPY := cargo clippy --workspace --all-targets --locked -- -D warnings
endif

# The demo uses the packages of a developer where they are installed.
DEMO_PACKAGES := $(or $(wildcard $(VENV)/.packages),$(VENV)/.demo-packages)

# What tests run on beside the newest Spark, each in a virtual environment of its own.
OLDER := spark35 spark40 spark41 pyarrow-oldest

# The oldest and the newest Java that a line of Spark runs on.
JAVA := JAVA_HOME="$$(tools/java-home $(VENV) 17 25)"; export JAVA_HOME;
JAVA35 := JAVA_HOME="$$(tools/java-home .venv-spark35 8 21)"; export JAVA_HOME;
JAVA40 := JAVA_HOME="$$(tools/java-home .venv-spark40 17 21)"; export JAVA_HOME;
JAVA41 := JAVA_HOME="$$(tools/java-home .venv-spark41 17 21)"; export JAVA_HOME;

# Tests marked `nightly`, and some files on older lines of Spark, are not run for each commit: `make
# test-nightly` runs them. CONTRIBUTING.md says which, and why.
WHEN := not nightly
ON_OLDER := $(WHEN)
on_spark = $(1:%=tests/spark/test_%.py)

# What changes between lines of Spark: values, column functions, the workers, streams. The newest line runs
# all tests, and 3.5, which differs most from it, these.
ON_EACH := $(call on_spark,smoke workers)
CONNECT := $(call on_spark,connect)
CARRIED_35 := $(addprefix tests/spark/test_carry_over.py::test_,a_process_that_is_killed_costs_calls_and_no_row \
	a_slow_call_does_not_hold_its_micro_batch_and_is_made_once rows_of_a_key_keep_their_order_over_micro_batches)
ON_35 := tests/types/test_async_udf.py $(call on_spark,types udf errors names streaming) $(CARRIED_35) $(ON_EACH)
ON_40 := $(ON_EACH)
ON_41 := $(ON_EACH)

# At night the older lines run more: 3.5 all of it, with the examples of the documents, the others the tables of types, streams and Connect.
# 4.0 and 4.1, which are between two lines that each change is tried on, run at night only.
ON_35_AT_NIGHT := tests/types tests/spark tests/meta/test_readme.py
ON_4_AT_NIGHT := tests/types $(call on_spark,types udf carry_over carry_over_vehicles) $(CONNECT)

# What a JVM of the tests maps instead of loading classes one by one.
CLASS_DATA := target/class-data/$(VENV).jsa

# Legs run some at a time. Each tells all that it has to say when it ends, where make can do that.
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) --jobs

# A task that hangs keeps its core of the local Spark, and every test after it waits in vain.
SPARK_LIMITS := --maxfail=3 --session-timeout=3600

# What runs in any Python, with nothing beside it.
NO_SPARK = not spark and not install and not lake and $(WHEN)

# Where the tests are that need Spark. pytest would import all others only to leave them out.
ON_SPARK := tests/spark tests/types tests/cluster tests/meta/test_readme.py

# What depends on pyarrow.
ARROW_WHEN = not spark and $(WHEN)
ON_ARROW := $(wildcard tests/unit/test_arrow*.py) \
	$(patsubst %,tests/unit/test_%.py,batching ddl results types) tests/connect/test_http.py
ON_ARROW_AT_NIGHT := tests/properties $(patsubst %,tests/unit/test_%.py,cache channels simulated) \
	$(patsubst %,tests/connect/test_%.py,postgres redis)

# The generator of the site imports the package, from where it is installed for development.
SITE := PYTHONPATH="python:$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	PATH="$(CURDIR)/target/docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' Makefile | \
		while IFS=$$'\t' read -r target text; do printf '%-20s %s\n' "$$target" "$$text"; done

.PHONY: demo
demo: ## enrich 336,776 flights over HTTP, check the output and print what was measured
	@$(MAKE) --jobs=2 $(or $(wildcard $(VENV)/.release),$(VENV)/.demo $(DEMO_PACKAGES))
	$(JAVA) $(PY) -m sparkawait demo

.PHONY: dev
dev: $(VENV)/.dev ## build the extension module for development into .venv

.PHONY: release
release: $(VENV)/.release ## build the extension module, optimised, into .venv

.PHONY: wheel
wheel: target/wheel/.packages ## build the wheel into dist/; TARGET=aarch64-unknown-linux-gnu, say, that of another machine
	tools/build-wheel target/wheel dist $(TARGET)

.PHONY: sdist
sdist: target/wheel/.packages ## write the source archive into dist/
	target/wheel/bin/maturin sdist --out dist

.PHONY: check
check: lint test docs ## all that has to pass before a change lands

# What the legs need comes first, or a long one would wait for what a short one needs; the longest is the
# first. Two at a time keep two cores busy.
.PHONY: test
test: ## all tests but those of the night: Rust, Python, the site, Spark, installation, and older versions where their Pythons are found
	@legs= needs=; for leg in $(filter-out spark40 spark41,$(OLDER)); do \
		if tools/python-for $$leg $(PYTHON) >/dev/null; then \
			legs="$$legs test-$$leg"; needs="$$needs .venv-$$leg/.packages"; \
		else echo "test-$$leg is left out"; fi; \
	done; \
	$(MAKE) $(TOGETHER)=2 dev $(VENV)/.servers $(CLASS_DATA) target/docs/.packages $$needs; \
	$(MAKE) $(TOGETHER)=2 test-spark test-python test-rust $$legs test-install site

.PHONY: test-nightly
test-nightly: ## what `make test` leaves out, and more combinations of options: what takes long and proves little for one commit
	@legs= needs=; for leg in $(OLDER); do \
		if tools/python-for $$leg $(PYTHON) >/dev/null; then \
			legs="$$legs test-$$leg"; needs="$$needs .venv-$$leg/.packages"; \
		else echo "test-$$leg is left out"; fi; \
	done; \
	$(MAKE) $(TOGETHER)=2 dev $(VENV)/.servers $(CLASS_DATA) $$needs; \
	$(MAKE) $(TOGETHER)=2 WHEN=nightly ON_OLDER=spark ON_35="$(ON_35_AT_NIGHT)" \
		ON_40="$(ON_EACH) $(ON_4_AT_NIGHT)" ON_41="$(ON_4_AT_NIGHT)" \
		ARROW_WHEN="not spark" ON_ARROW="$(ON_ARROW_AT_NIGHT)" \
		combinations $$legs test-spark test-python test-install loom lint-rust lint-connectors lint-rustdoc

.PHONY: combinations
combinations: dev ## search for options that do not go together, and for arguments that are neither taken nor refused; COMBINATIONS=4711 runs one case again
	COMBINATIONS=$(or $(COMBINATIONS),87..5000) $(PY) -m pytest --quiet tests/properties/test_combinations.py
	ARGUMENTS=150 $(PY) -m pytest --quiet tests/properties/test_arguments.py

.PHONY: test-rust
test-rust: $(VENV)/.packages $(VENV)/.servers ## the tests of the crates, doc tests included
	MAKEFLAGS= cargo test $(TESTED) --locked --quiet

# As `make demo` builds it: quicker than the tests, and quicker to build than a release.
.PHONY: simulate
simulate: | need-rust ## run whole tasks in simulation, SEEDS=0..10000 of them; the first that breaks a rule is made smaller and shown
	@cargo run --quiet --package sparkawait-simulation --locked --profile demo -- $(SEEDS)

.PHONY: test-python
test-python: dev $(VENV)/.servers ## the Python tests that need no Spark, and the examples in docstrings; `make lint` runs tests/meta
	$(MAKE) $(TOGETHER)=2 test-connect test-units

# Half of the time of both is waiting, most of it for servers: side by side they need one core.
.PHONY: test-connect test-units
test-connect: dev $(VENV)/.servers ## those of them that call servers
	$(PY) -m pytest --quiet -m "$(NO_SPARK)" tests/connect
test-units: dev $(VENV)/.servers ## the others
	$(PY) -m pytest --quiet -m "$(NO_SPARK)" --ignore=tests/meta --ignore=tests/connect

.PHONY: test-spark
test-spark: dev $(VENV)/.servers $(CLASS_DATA) ## the tests on the newest Spark
	$(JAVA) $(PY) -m pytest --quiet $(SPARK_LIMITS) -m "spark and $(WHEN)" $(ON_SPARK)

.PHONY: test-cluster
test-cluster: dev $(CLASS_DATA) ## the part of them that runs on a cluster of real processes, some of which are killed
	$(JAVA) $(PY) -m pytest --quiet $(SPARK_LIMITS) tests/cluster

SEED ?= 1
ROWS ?= 1013
.PHONY: soak
soak: dev $(VENV)/.servers $(CLASS_DATA) ## jobs under drawn faults for T seconds, the same for a SEED; ON=cluster kills executors, too
	$(JAVA) $(PY) -m tests.cluster.soak $(T) $(SEED) $(ROWS) $(ON)

.PHONY: test-install
test-install: dev ## the first example of the README and the notebooks in new environments, with a wheel; the source archive
	$(JAVA) SPARKAWAIT_WHEEL="$(SPARKAWAIT_WHEEL)" $(PY) -m pytest --quiet -o tmp_path_retention_policy=failed \
		-m "install and $(WHEN)" tests/install

# The newest line of Spark that Kafka, Delta and Iceberg have connectors for.
.PHONY: test-lake
test-lake: dev .venv-spark41/.packages ## the page about Kafka, Delta and Iceberg, with a real broker; fetches 180 MB of jars once
	$(JAVA41) tools/kafka-jars .venv-spark41/bin/python target/lake/kafka; \
		PATH="$$JAVA_HOME/bin:$$PATH" .venv-spark41/bin/python -m pytest --quiet -o faulthandler_timeout=0 -m lake tests/lake

.PHONY: test-spark35
test-spark35: dev .venv-spark35/.packages $(VENV)/.servers ## the tests of the Spark functions on the oldest Spark, 3.5
	$(JAVA35) .venv-spark35/bin/python -m pytest --quiet $(SPARK_LIMITS) \
		-m "spark and not newest_spark and $(ON_OLDER)" $(ON_35)

.PHONY: test-spark40
test-spark40: dev .venv-spark40/.packages ## what may differ between versions of Spark, on 4.0
	$(JAVA40) .venv-spark40/bin/python -m pytest --quiet $(SPARK_LIMITS) \
		-m "spark and not newest_spark and $(ON_OLDER)" $(ON_40)

.PHONY: test-spark41
test-spark41: dev .venv-spark41/.packages ## what may differ between versions of Spark, on 4.1
	$(JAVA41) .venv-spark41/bin/python -m pytest --quiet $(SPARK_LIMITS) \
		-m "spark and not newest_spark and $(ON_OLDER)" $(ON_41)

.PHONY: test-pyarrow-oldest
test-pyarrow-oldest: dev .venv-pyarrow-oldest/.packages $(VENV)/.servers ## what needs no Spark, on the oldest pyarrow
	COMBINATIONS=0..30 .venv-pyarrow-oldest/bin/python -m pytest --quiet -m "$(ARROW_WHEN)" $(ON_ARROW)

.PHONY: loom
loom: | need-rust ## check every interleaving of the ends of the mailbox: what is put into a task, and taken from it
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom LOOM_MAX_PREEMPTIONS=3 \
		cargo test --package sparkawait-core --locked --release --test loom_mailbox

.PHONY: miri
miri: | need-rust ## run the tests of the core under Miri (nightly Rust with the component miri)
	@cargo +nightly miri --version >/dev/null 2>&1 || { \
		echo "error: Miri is not installed; run \`rustup toolchain install nightly --component miri\`" >&2; exit 1; }
	CARGO_TARGET_DIR=target/miri PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation \
		cargo +nightly miri test --package sparkawait-core --locked --lib

.PHONY: fuzz
fuzz: | need-rust ## fuzz every parser for T seconds each (nightly Rust and cargo-fuzz); TARGETS names some
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
		echo "error: cargo-fuzz is not installed; run \`rustup toolchain install nightly\` and \`cargo install cargo-fuzz\`" >&2; exit 1; }
	for target in $(TARGETS); do \
		mkdir -p target/fuzz/found/$$target; \
		cargo +nightly fuzz run --fuzz-dir rust/fuzz --target-dir target/fuzz --features "$(TARGETS)" $$target \
			target/fuzz/found/$$target rust/fuzz/corpus/$$target -- \
			-max_total_time=$(T) -rss_limit_mb=2048 -timeout=10; \
	done

.PHONY: lint
lint: ## format, clippy, ruff, types, stubs, layers, licences, workflows
	@$(MAKE) $(TOGETHER)=2 lint-rust lint-workflows lint-stubs lint-python lint-repository

.PHONY: lint-rust
lint-rust: | need-rust ## format and clippy
	cargo fmt --all --check
	$(CLIPPY)

.PHONY: lint-rustdoc
lint-rustdoc: | need-rust ## the documentation of the crates: its links lead somewhere
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

.PHONY: lint-connectors
lint-connectors: | need-rust ## each connector compiled without the others
	for connector in http postgres redis; do \
		cargo check --quiet --package sparkawait-connect --locked --no-default-features --features $$connector; \
	done

.PHONY: lint-python
lint-python: $(VENV)/.packages ## ruff and types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/basedpyright --project pyproject.toml

# What needs the extension module waits for Cargo, while types are checked.
.PHONY: lint-stubs
lint-stubs: dev ## the stubs of the extension module
	$(PY) -m mypy.stubtest sparkawait._core

.PHONY: lint-repository
lint-repository: dev ## layers, sizes, licences, what the documents name
	$(PY) -m pytest --quiet -m "not spark" tests/meta

.PHONY: lint-workflows
lint-workflows: target/workflows/.packages ## holes and unknown words in .github
	target/workflows/bin/zizmor --offline --quiet .github
	target/workflows/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	target/workflows/bin/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml

.PHONY: signatures
signatures: dev ## write what editors show of the wait functions, and the types of their options, from the options
	$(PY) tools/signatures.py

.PHONY: fmt
fmt: $(VENV)/.packages ## rewrite files into the project's format
	cargo fmt --all
	$(VENV)/bin/ruff check --fix --exit-zero
	$(VENV)/bin/ruff format

.PHONY: docs
docs: dev $(VENV)/.servers site lint-rustdoc ## build the documentation of both languages and run every example
	cargo test $(TESTED) --doc --locked --quiet
	$(PY) -m pytest --quiet --doctest-modules python
	$(JAVA) $(PY) -m pytest --quiet tests/meta/test_readme.py

.PHONY: site
site: dev target/docs/.packages ## build the documentation site into target/site; a broken link or name fails it
	$(PY) -m tools.site_source target/site-source
	@$(SITE) mkdocs build --quiet

.PHONY: site-check
site-check: site target/site-check/.packages ## look at the site in a headless browser, two widths, light and dark; axe must find nothing
	tools/install-servers --browser
	target/site-check/bin/python tools/site_check.py target/site target/site-pictures

.PHONY: site-deploy
site-deploy: site ## publish the site as SITE_VERSION, and as the latest one, on the branch gh-pages
	@$(SITE) mike deploy --push --update-aliases $(SITE_VERSION) latest
	@$(SITE) mike set-default --push latest

.PHONY: bench
bench: release $(VENV)/.servers ## run the benches in Rust and Python; numbers go to benches/out
	tools/install-servers --benches
	mkdir -p benches/out
	cargo bench --package sparkawait-benches --locked $(TIMED:%=--bench %) | tee benches/out/rust.txt
	$(JAVA) $(PY) benches/python/run.py --out benches/out
	$(JAVA) $(PY) -m benches.compare --quick

.PHONY: bench-channels
bench-channels: release ## one destination of ten stands still: measure the others; draws docs/flow-control.svg
	mkdir -p benches/out
	$(PY) benches/python/run.py --out benches/out channels
	$(PY) -c "from benches.compare import environment; environment.ensure('charts')"
	target/compare/charts/bin/python -m benches.python.channels_chart benches/out/channels.json docs/flow-control.svg

.PHONY: bench-stream
bench-stream: release ## micro-batches of a stream with stragglers; draws docs/streaming.svg
	mkdir -p benches/out
	$(JAVA) $(PY) benches/python/run.py --out benches/out stream_stragglers
	$(PY) -c "from benches.compare import environment; environment.ensure('charts')"
	target/compare/charts/bin/python -m benches.python.stream_chart benches/out/stream_stragglers.json docs/streaming.svg

.PHONY: pictures
pictures: release ## draw what a terminal and the notebooks show into docs/pictures, out of real runs
	$(JAVA) $(PY) -m tools.pictures

.PHONY: bench-compare
bench-compare: $(if $(filter --plan --list --page,$(ARGS)),dev,release) ## measure sparkawait beside Flink, Daft, Ray Data, Pathway and recipes; ARGS=--plan says for how long
	$(JAVA) $(PY) -m benches.compare $(ARGS)

.PHONY: bench-check
bench-check: count-instructions ## count the instructions of each layer; fails where a row takes 2 % more than the baseline
	$(PY) benches/python/instructions.py check

.PHONY: bench-baseline
bench-baseline: count-instructions ## count the instructions of each layer and write them to benches/baseline
	$(PY) benches/python/instructions.py renew

.PHONY: lock
lock: $(VENV)/.packages ## write requirements/*.lock anew from pyproject.toml
	$(PY) -m venv target/uv
	target/uv/bin/pip install --quiet uv
	for group in dev demo-alone $(OLDER) java wheel docs site-check workflows notebooks $(COMPARED); do \
		target/uv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --group $$group \
			--generate-hashes --no-emit-index-url --no-header --no-annotate --output-file requirements/$$group.lock; \
	done

.PHONY: clean
clean: ## remove everything that make has made
	rm -rf target dist benches/out $(VENV) $(OLDER:%=.venv-%) $(EXTENSION)
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis spark-warehouse

# --- Set-up -------------------------------------------------------------------------------------

.PHONY: need-rust
need-rust:
	@tools/need-rust

# As the wheel is built, and with no count of an earlier run left over.
.PHONY: count-instructions
count-instructions: $(VENV)/.packages
	tools/install-valgrind target/gungraun
	rm -rf $(COUNTS)
	GUNGRAUN_RUNNER=$(CURDIR)/target/gungraun/bin/gungraun-runner GUNGRAUN_HOME=$(CURDIR)/$(COUNTS) \
		cargo bench --package sparkawait-benches --locked --profile release \
		--bench 'instructions_*' -- --save-summary=json

# The extension module is built in place and for the stable ABI, so every environment uses the one
# file that is there, and needs only to be told where the package is.
define tell_path
echo "$(CURDIR)/python" >"$$($(1) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sparkawait.pth"
endef

$(VENV)/.packages: requirements/dev.lock | need-rust
	@tools/need-python $(PYTHON)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) $(PIP_INSTALL) --requirement requirements/dev.lock
	$(PY) -m tools.compile_archives
	@$(call tell_path,$(PY))
	@touch $@

# What builds wheels and the site, and what checks the workflows, has packages of its own.
target/wheel/.packages target/docs/.packages target/site-check/.packages target/workflows/.packages: target/%/.packages: requirements/%.lock | need-rust
	@tools/need-python $(PYTHON)
	test -x target/$*/bin/python || $(PYTHON) -m venv target/$*
	target/$*/bin/python $(PIP_INSTALL) --requirement requirements/$*.lock
	@touch $@

$(CLASS_DATA): tools/class_data.py | $(VENV)/.packages
	$(JAVA) $(PY) -m tools.class_data $@

# Tests start Redis, nginx and PostgreSQL themselves.
$(VENV)/.servers: tools/install-servers | $(VENV)/.packages
	tools/install-servers
	@touch $@

# What the demo needs, in versions that developers have, too. Maturin comes first, so that it compiles
# the crates while pip fetches the rest.
$(VENV)/.maturin: requirements/demo-alone.lock | need-rust
	@tools/need-python $(PYTHON)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) $(PIP_INSTALL) --no-deps --requirement <(sed -n '/^maturin==/,/[^\\]$$/p' $<)
	@touch $@

$(VENV)/.demo-packages: requirements/demo-alone.lock $(VENV)/.maturin
	$(PY) $(PIP_INSTALL) --requirement requirements/demo-alone.lock
	@$(call tell_path,$(PY))
	@touch $@

# One file of the extension module serves all profiles, so the stamp of one removes the others';
# Cargo keeps all builds. A demo without a release build is content with a quicker one, and with the
# connector that it uses.
$(VENV)/.dev $(VENV)/.release: $(VENV)/.packages
$(VENV)/.demo: $(or $(wildcard $(VENV)/.packages),$(VENV)/.maturin)
$(VENV)/.demo: FEATURES := --no-default-features --features http
$(VENV)/.dev $(VENV)/.demo $(VENV)/.release: $(VENV)/.%: $(RUST_SOURCES)
	$(VENV)/bin/maturin develop --quiet --locked --skip-install --profile $* $(FEATURES)
	@rm -f $(VENV)/.dev $(VENV)/.demo $(VENV)/.release
	@touch $@

$(OLDER:%=.venv-%/.packages): .venv-%/.packages: requirements/%.lock
	python="$$(tools/python-for $* $(PYTHON))"; test -x .venv-$*/bin/python || "$$python" -m venv .venv-$*
	.venv-$*/bin/python $(PIP_INSTALL) --requirement requirements/$*.lock
	.venv-$*/bin/python -m tools.compile_archives
	@$(call tell_path,.venv-$*/bin/python)
	@touch $@
