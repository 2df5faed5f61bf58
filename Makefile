# One line of go each, where that will do. The names are stable: docs and CI
# refer to them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
TOOL := $(GO) tool -modfile=.ci/tools.mod
# Packages to test, time for each fuzz test, further arguments.
PKG ?= ./...
FUZZTIME ?= 20s
ARGS ?=
# Two packages at a time: each real broker takes 360 MB and a second of CPU.
TEST := $(GO) test -p 2 -timeout 15m

.PHONY: help build test race fake real robust fuzz lint arrows cover bench tidy-check clean clusters demo

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

build: ## bin/mirror, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/mirror ./cmd/mirror

test: ## all tests: unit, embedded and, where Java and Maven are there, real brokers; names what it skips
	@$(TEST) -v $(PKG) 2>&1 | awk -f .ci/report.awk

fake: ## unit tests and embedded brokers only; needs nothing but Go
	@$(TEST) -v -skip Real $(PKG) 2>&1 | awk -f .ci/report.awk

real: ## the tests on real brokers only; needs Java 17 and Maven
	@$(TEST) -v -run Real $(PKG) 2>&1 | awk -f .ci/report.awk

race: ## make fake under the race detector; needs a C compiler
	@$(TEST) -v -race -skip Real $(PKG) 2>&1 | awk -f .ci/report.awk

robust: ## the long kill campaigns of testenv/robust and its mutations, half an hour; ARGS="-run Kill -seed 42"
	$(GO) test -count=1 -timeout 90m -v ./testenv/robust -long $(ARGS)

fuzz: ## each fuzz test for FUZZTIME (20s)
	@for p in $$($(GO) list $(PKG)); do list=$$($(GO) test -list '^Fuzz' $$p); for f in $$(grep '^Fuzz' <<<"$$list" || true); do \
		$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; done; done

lint: ## golangci-lint as pinned in .ci/tools.mod; formatting included
	$(TOOL) golangci-lint run $(PKG)

arrows: ## what linters can't see: imports between rooms, file length, documented symbols, pages
	$(GO) test -count=1 ./testenv/lint

cover: ## coverage without real brokers, by function and in all
	$(GO) test -p 2 -skip Real -coverpkg=./... -coverprofile=coverage.out $(PKG)
	$(GO) tool cover -func=coverage.out | tail -n 1

bench: ## beside MirrorMaker 2 on real brokers: throughput, or ARGS="-pairs 5", "-latency", "-restart"
	$(GO) run ./testenv/bench $(ARGS)

tidy-check: ## go.mod and go.sum are what the code needs
	$(GO) mod tidy -diff

clusters: ## two real clusters that stay up until Ctrl-C; ARGS="-source 3.9.2"
	$(GO) run ./testenv/clusters $(ARGS)

demo: ## two embedded clusters, a mirror, a killed worker, and the count at the end
	$(GO) run ./cmd/mirror demo $(ARGS)

clean: ## remove what the targets made
	rm -rf bin bench-out coverage.out
