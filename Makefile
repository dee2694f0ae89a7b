# All targets need Go. In addition arm64 needs an emulator, integration needs a JRE
# and Maven for a real Apache Kafka, and staticcheck and govulncheck are fetched by
# the Go tool. Tests of the status page need Chromium, and one of change streams needs
# PostgreSQL; others need python3 and kubernetes-validate, and those of the Python package pytest and
# the modules of Python and npm that .ci/run installs. Without them they are skipped, or fail where
# STREAMD_REQUIRE_PROGRAMS=1.

.PHONY: all test wheel python full histories stages labels engines studies mutants paired vet staticcheck govulncheck race race-daemon race-others unraced purego arm64 fuzz bench integration kafka-suite published generate-check

all: vet test

# Everything, for a day without hurry: .ci/run has the share of it that each change needs.
full: vet staticcheck generate-check
	$(MAKE) race unraced
	$(MAKE) histories HISTORIES=10000
	$(MAKE) stages labels engines
	$(MAKE) mutants
	$(MAKE) purego
	$(MAKE) arm64 ARM64=ALL
	$(MAKE) published
	$(MAKE) published PUBLISHED="$(LONG)"
	KAFKA_VERSION=3.9.1 $(MAKE) integration
	KAFKA_VERSION=4.2.0 $(MAKE) integration
	$(MAKE) studies

# The most time for the tests of one package. It ends a test that hangs, and leaves
# room for a machine ten times as slow.
TIMEOUT ?= 30m

test:
	go test -timeout $(TIMEOUT) ./...

# The Python package with the program in it: see cmd/streamd/python/README.md. PLATFORM is by
# default that of this machine.
wheel:
	python3 cmd/streamd/python/wheel.py $(if $(PLATFORM),--platform $(PLATFORM))

# Its tests, on the installed wheel. The other packages that they use are those of the machine's
# Python. Without a part of them, tests are skipped.
PYTHON_DIR ?= .python
python:
	rm -rf $(PYTHON_DIR)
	python3 cmd/streamd/python/wheel.py --to $(PYTHON_DIR)/dist
	python3 -m venv --system-site-packages $(PYTHON_DIR)/venv
	$(PYTHON_DIR)/venv/bin/pip install -q --no-index --no-deps $(PYTHON_DIR)/dist/*.whl
	$(PYTHON_DIR)/venv/bin/python -m pytest -q -p no:cacheprovider -W error cmd/streamd/python/tests

# Random histories of daemons, with every way for a block to come, to go and to come back, and
# a million cycles of blocks that come and go. The receipts of each history are checked alone,
# with the snapshot, and with the log read again. The first seed comes from the commit, so that
# each change tries others; HISTORY=SEED HISTORIES=1 repeats one. Files are in memory where the
# system has such a folder.
HISTORIES ?= 1500
HISTORY ?= $(shell printf %d 0x$$(git rev-parse HEAD | cut -c 1-8))
histories:
	STREAMD_CYCLES=1000000 go test -count=1 -timeout $(TIMEOUT) -run '^TestCycles' ./cmd/streamd/daemon/live
	STREAMD_HISTORY=$(HISTORY) STREAMD_HISTORIES=$(HISTORIES) go test -count=1 -timeout $(TIMEOUT) -run '^TestLaw$$' \
		-exec 'env TMPDIR=$(firstword $(wildcard /dev/shm) $(TMPDIR) /tmp)' ./cmd/streamd/daemon

# Random histories of stages before daemons (TestStagesCrash): on the embedded broker 2 to 3 s each
# on two cores, and on an Apache Kafka that restarts 8 to 20 s. They mostly wait, so more of them run
# than there are cores.
STAGES ?= 5000
KAFKA_STAGES ?= 300
STAGES_TEST = go test -count=1 -parallel 6 -timeout 24h -run '^TestStagesCrash$$' ./cmd/streamd/summarise
stages:
	STREAMD_HISTORY=$(HISTORY) STREAMD_STAGE_HISTORIES=$(STAGES) $(STAGES_TEST)
	$(BROKER) env STREAMD_HISTORY=$(HISTORY) STREAMD_STAGE_HISTORIES=$(KAFKA_STAGES) $(STAGES_TEST)

# Random histories of rows, labels and predictions in an Apache Kafka, with daemons that are killed.
# They mostly wait, too.
LABELS ?= 1000
labels:
	$(BROKER) env STREAMD_HISTORY=$(HISTORY) STREAMD_HISTORIES=$(LABELS) go test -count=1 -parallel 6 -timeout 24h \
		-run '^TestKillWhile(LabelsCome|PredictionsAreRemembered)$$' ./cmd/streamd/daemon

# Tasks of Spark and blocks of Ray through the Python package. pip builds pyspark, of 460 MB, in some
# minutes.
ENGINES ?= $(CURDIR)/.engines
engines:
	[ -x $(ENGINES)/bin/python ] || python3 -m venv $(ENGINES)
	$(ENGINES)/bin/pip install -q pyspark==4.1.1 ray[data]==2.60.0 pyarrow==26.0.1 pandas==3.1.1 pytest==9.2.0
	python3 cmd/streamd/python/wheel.py --to $(ENGINES)/dist
	$(ENGINES)/bin/pip install -q --no-index --no-deps --force-reinstall $(ENGINES)/dist/*.whl
	STREAMD_ENGINES=1 $(ENGINES)/bin/python -m pytest -q -p no:cacheprovider cmd/streamd/python/tests/test_engines.py

# Histories with studies on: more of them, and whole daemons through an Apache Kafka.
STUDIES ?= 500
studies:
	STREAMD_HISTORY=$(HISTORY) STREAMD_HISTORIES=$(STUDIES) go test -count=1 -timeout $(TIMEOUT) -run '^TestStudiesOfHistories$$' ./cmd/streamd/daemon
	$(BROKER) env STREAMD_HISTORIES=$(STUDIES) go test -count=1 -timeout $(TIMEOUT) -run '^TestStudiesThroughKafka$$' ./cmd/streamd/daemon

# Faults that are planted one at a time: at most one in twenty is found by no test.
MUTANTS ?= 200
mutants:
	go run ./testdata/mutants -mutants $(MUTANTS)

# The benchmarks of BASE and of HEAD in turn, on a machine at rest: fails where HEAD is slower by
# more than 5 % and the spread. BROKERS=host:port reads an Apache Kafka, AVX512=off is a processor
# without AVX-512.
ROUNDS ?= 5
CASES ?= gram,wire,ingest,ledger,predict
paired:
	GODEBUG=$(if $(filter off,$(AVX512)),cpu.avx512f=off) go run ./testdata/paired \
		-base $(or $(BASE),$(error BASE=REVISION is needed)) -rounds $(ROUNDS) -cases $(CASES) $(if $(BROKERS),-brokers $(BROKERS))

vet:
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	@! git grep -nE '^(<{7}|>{7}) ' || { echo "a conflict was not resolved"; exit 1; }
	go vet ./... ./testdata/mutants ./testdata/paired
	go vet -tags production ./cmd/streamd

# Other programs are pinned here and not in go.mod, so that their requirements stay
# out of the module. With a tag, code for other builds is unused and no fault (U1000).
staticcheck:
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -checks inherit,-U1000 -tags production ./cmd/streamd
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -checks inherit,-U1000 -tags purego ./incremental/... ./kernels ./ingest/...

# Known vulnerabilities in functions that the program calls. Needs the network.
govulncheck:
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./cmd/streamd

# The packages that start goroutines run under the race detector, which makes what computes five to ten
# times as slow. It skips tests that mostly compute (COMPUTING), or kill processes again and again,
# with goroutines that other tests have, too; scripts and pages that add no goroutines; documents; a
# script whose command has to stop within a second; damaged files that one goroutine reads; and tests
# of a process's memory, which the detector multiplies. unraced runs these, and all other packages:
# with the histories, which are those of TestLaw, they are all tests. Many wait, so there are more
# processes than two.
RACED = ./cmd/streamd ./cmd/streamd/bench ./cmd/streamd/daemon ./cmd/streamd/daemon/control ./cmd/streamd/daemon/intake \
	./cmd/streamd/daemon/loop ./cmd/streamd/daemon/passes ./cmd/streamd/daemon/planes ./cmd/streamd/daemon/saving \
	./cmd/streamd/daemon/witness ./cmd/streamd/httpapi ./cmd/streamd/pipeline ./cmd/streamd/scoring \
	./cmd/streamd/stage/... ./cmd/streamd/summarise ./incremental/parallel ./ingest/kafka/... ./ingest/ndc \
	./ingest/registry/... ./snapshot
COMPUTING = TestLaw$$ TestStudiesOfHistories TestServedModelIsThatOfItsBlocks TestStudyIsAFunctionOfTheLiveSet \
	TestEpochIsAFunctionOfTheLiveSet TestPlanesOfUnlabelledRows TestCheckerboardOnTheStream TestGammaOfTheStream TestPruning$$ \
	TestNothingIsLeftOfTheForgotten TestForgottenRowsLeaveTheBasis BelowTheLimit
UNRACED = $(COMPUTING) \
	TestScripts/(access|auto|baseline|bench|check|columns|completion|csv|defaults|epoch|export|fit|fold|kernel|keys|knowledge|labels|later) \
	TestScripts/(law|letters|plot|predict|progressive|readme|receipts|refine|replay$$|replayed_sums|replayed_texts|reproduce|rules|schema|snapshot|tune|usage) \
	TestBench TestReproduceThroughKafka TestExamples TestDocuments TestDockerfile TestTheCompilerFusesNothing TestProductsAreRounded FuzzPlotModel \
	TestDaemonAndFitTakeTheSame TestStudiesThroughKafka TestKillTwentyTimes TestKillInRebuilds TestKill$$ TestAnyOrder TestAnySeed \
	TestFileOfIDs TestIndependentVerifier TestThePastIsThatOfADaemonThatKeepsAll TestQualityBySize \
	TestLabelsThatComeLater TestGatheredBlocksAreAFunctionOfTheLog TestChangesAreATable \
	InBrowser TestPageIsAccessible TestPageWithoutScripts TestQueriesAreKnown TestAlertRules \
	TestBombs TestFlippedBits TestPagesOfOtherSaves TestStagesCrash TestCarelessStages
empty :=
any = '$(subst $(empty) ,|,$(strip $1))'
SHARDS = testdata/shards.sh
race: export CGO_ENABLED = 1
race:
	go build -race $(RACED)
	$(MAKE) --no-print-directory -j2 -O race-daemon race-others
race-daemon:
	$(SHARDS) 3 ./cmd/streamd/daemon -v -race -timeout $(TIMEOUT) -skip $(call any,$(UNRACED))
race-others:
	go test -v -race -p 3 -timeout $(TIMEOUT) -skip $(call any,$(UNRACED)) $$(go list $(RACED) | grep -v /daemon$$)
unraced:
	go test -v -p 3 -timeout $(TIMEOUT) $$(go list ./... | grep -vxF "$$(go list $(RACED))")
	go test -v -p 3 -timeout $(TIMEOUT) -run $(call any,$(UNRACED)) -skip '^TestLaw$$' $(RACED)

# Without assembly, and on an emulated processor: the same bits. What has assembly runs all its
# tests there, and of other packages those run that compare bits with those of any processor;
# nothing else differs, as TestTheCompilerFusesNothing shows. ARM64=ALL runs all tests of numbers.
purego:
	go test -tags purego -timeout $(TIMEOUT) ./incremental/... ./kernels ./ingest/ndc

# Needs qemu-user-static.
ARM64 ?=
ON_ARM64 = GOARCH=arm64 go test -exec qemu-aarch64-static -timeout $(TIMEOUT)
arm64:
	$(ON_ARM64) ./incremental/gram ./incremental/exact ./kernels ./ingest/ndc
	$(ON_ARM64) -run OnEveryProcessor ./incremental ./kernels/reduce
	$(if $(ARM64),$(ON_ARM64) ./incremental/... ./ingest/wire)

# Every fuzz target of every package, FUZZTIME each.
FUZZTIME ?= 10s
fuzz:
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package; \
		done; \
	done

bench:
	go test -run '^$$' -bench . ./...

# The Kafka suite, the daemon's tests without those that mostly compute, those of stages, the control
# topic and figure 2.7 against a real Apache Kafka. kafka-suite is the first of these alone, for the
# versions that need no more.
KAFKA_DIR ?= .kafka
BROKER = testdata/kafka/kafka.sh run $(KAFKA_DIR) -- env STREAMD_REQUIRE_BROKER=1
integration: kafka-suite
	$(BROKER) sh -c '$(SHARDS) 4 ./cmd/streamd/daemon -timeout $(TIMEOUT) -skip $(subst ','\'',$(call any,$(COMPUTING))) && \
		go test -count=1 -timeout $(TIMEOUT) -p 1 -parallel 4 -run "TestStages|TestAnswer" ./cmd/streamd/summarise ./cmd/streamd/scoring && \
		go test -count=1 -timeout $(TIMEOUT) -run ThroughKafka ./cmd/streamd'
kafka-suite:
	$(BROKER) $(SHARDS) 3 ./ingest/kafka/kafkatest -timeout $(TIMEOUT) -run ApacheKafka

# The papers' tables beside ours, on data sets that are not part of the project: those that take
# less than a minute. LONG are the others, which make full has.
DATA ?= ../shared/data
PUBLISHED ?= fung-2.1 fung-2.3 fung-2.4 fung-2.5 fig-2.7 fig-2.8 fig-2.11 fung-6.1 fung-6.2 spiral checkerboard wpbc-knowledge fig-3.3 xor checkerboard-knowledge fung-4.1 fung-4.2 fig-4.4 fung-4.5 fung-4.6 prequential drift libsvm fung-5.1 fig-5.1
LONG = fung-3.1 wu-1 wu-2 iwamura-2 cs-1 cs-2
published:
	go run ./cmd/streamd reproduce $(PUBLISHED) --data $(DATA) --check

# Generated files are up to date.
generate-check:
	go generate ./...
	git diff --exit-code
