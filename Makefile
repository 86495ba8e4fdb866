# demo: see it work.  test: prove it.  check: the cheap rules.  bench, fuzz: numbers and surprises.
# The whole, as a change has to pass it, is .ci/run.

GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.0
FUZZTIME ?= 10s
BENCH ?= .
COUNT ?= 10

.PHONY: all demo test check bench peers fuzz sim leaks soak vm vm-long build

all: build

build:
	$(GO) build -o bin/ ./cmd/...

# Sends and receives over the in-process wire, as any user, and leaves bin/ and the reports in bin/demo.
demo: build
	scripts/demo.sh bin/pktgen bin/demo

# Installs what tests need where it may, then runs all of them and says which were skipped and why.
test:
	scripts/deps.sh
	$(GO) vet ./...
	$(GO) run ./internal/testrun ./...

check:
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test ./internal/tidy

# Ten runs of each, for benchstat: make bench BENCH=Rearm > new.txt
bench:
	$(GO) test -run '^$$' -bench '$(BENCH)' -count $(COUNT) ./bench/...

.PHONY: checksums
# The long form of a test: scapy and tshark recompute the checksums that the device made.
FRAMES ?= 100000
checksums:
	BLUERING_CHECKSUM_FRAMES=$(FRAMES) $(GO) test -count=1 -timeout 0 -v -run OffloadedChecksums ./cmd/pktgen/acceptance

.PHONY: bench-peers
# The same against other people's modules, which are downloaded: make bench-peers BENCH=Checksum
bench-peers:
	$(GO) -C bench/peers-go test -run '^$$' -bench '$(BENCH)' -count $(COUNT) ./...

# Other programs and ours in turns, as root on a quiet machine: make -s peers PEERS='-o markdown' > figures.md
PEERS ?=
peers:
	$(GO) build -o bin/ ./bench/peers
	bin/peers $(PEERS)

fuzz:
	scripts/fuzz.sh $(FUZZTIME)

# The nightly form of the simulation of two devices; the short one is part of make test.
SEEDS ?= 1000000
sim:
	BLUERING_SIM_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 0 -v -run TestSimulation ./engine/simulation

# The long forms of what make test does shortly: nothing is left of an opened and closed wire, and memory does not grow
# with the packets sent. docs/HARDWARE.md has their last results.
CYCLES ?= 1000
leaks:
	BLUERING_LEAK_CYCLES=$(CYCLES) $(GO) test -count=1 -timeout 0 -v -run TestNothingIsLeftOfAWire ./engine/device
PACKETS ?= 1000000000
soak:
	BLUERING_SOAK_PACKETS=$(PACKETS) $(GO) test -count=1 -timeout 0 -v -run TestSoak ./cmd/pktgen/traffic

# The long form of the counting that make test does: a million datagrams over loop:, udp: and packet:, by package ud and by
# two processes of udecho, are received or dropped by name, to the unit; then kills and floods of garbage.
DATAGRAMS ?= 1000000
.PHONY: million
million:
	BLUERING_DATAGRAMS=$(DATAGRAMS) $(GO) test -count=1 -timeout 0 -v -run 'Million|AccountedFor|Garbage|Killed' ./ud ./cmd/udecho

# The tests whose peer is kernel rxe in a virtual machine. Needs no RDMA, and no module of this machine's kernel. The long
# form has udecho's every size with every program, device, address family and direction, in some minutes.
vm-long: export BLUERING_VM_LONG = 1
vm vm-long:
	scripts/deps.sh vm
	BLUERING_VM=1 $(GO) run ./internal/testrun -count=1 -p 1 -timeout 30m ./internal/vmtest ./ud/interop ./cmd/udecho ./cmd/pktgen
