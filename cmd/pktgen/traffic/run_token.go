package traffic

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Token is what a receiver in another process must know of a run. As text:
//
//	1.RUNID.START.BOOT.FLOWS
//
// in hexadecimal but for FLOWS. START is CLOCK_MONOTONIC in nanoseconds, from
// which the tags count; 0 is not known. BOOT names the boot whose clock that
// is, "-" if it is not known.
type Token struct {
	RunID   uint64 // the tag's key comes from it
	StartNS int64
	Boot    string // 32 hexadecimal digits
	Flows   int
}

const tokenWants = "use what tx prints: 1.RUNID.START.BOOT.FLOWS, hexadecimal but for FLOWS"

// ParseToken reads a run token. Errors are usage errors.
func ParseToken(s string) (Token, error) {
	f := strings.Split(strings.ToLower(strings.TrimSpace(s)), ".")
	if len(f) != 5 || f[0] != "1" {
		return Token{}, results.Usage("run", s, "is not a run token of version 1; "+tokenWants)
	}
	id, errID := strconv.ParseUint(f[1], 16, 64)
	start, errStart := strconv.ParseInt(f[2], 16, 64)
	flows, errFlows := strconv.Atoi(f[4])
	boot := f[3]
	switch {
	case errID != nil:
		return Token{}, results.Usage("run", s, fmt.Sprintf("%q is not a run id; %s", f[1], tokenWants))
	case errStart != nil || start < 0:
		return Token{}, results.Usage("run", s, fmt.Sprintf("%q is not a start; %s", f[2], tokenWants))
	case boot != "-" && (len(boot) != 32 || strings.Trim(boot, "0123456789abcdef") != ""):
		return Token{}, results.Usage("run", s, fmt.Sprintf("%q is not a boot id; %s", boot, tokenWants))
	case errFlows != nil || flows < 1 || flows > MaxFlows:
		return Token{}, results.Usage("run", s, fmt.Sprintf("%q is not a number of flows from 1 to %d; %s", f[4], MaxFlows, tokenWants))
	}
	if boot == "-" {
		boot = ""
	}
	return Token{RunID: id, StartNS: start, Boot: boot, Flows: flows}, nil
}

// String is the token as --run takes it.
func (t Token) String() string {
	boot := t.Boot
	if boot == "" {
		boot = "-"
	}
	return fmt.Sprintf("1.%016x.%x.%s.%d", t.RunID, t.StartNS, boot, t.Flows)
}

// NewToken makes a token for a run that starts at startNS on this machine.
func NewToken(startNS int64, flows int) Token {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return Token{RunID: binary.LittleEndian.Uint64(id[:]), StartNS: startNS, Boot: bootID(), Flows: flows}
}

// SameClock reports whether the token's start is a reading of this machine's
// present clock.
func (t Token) SameClock() bool {
	return t.StartNS > 0 && t.Boot != "" && t.Boot == bootID()
}

// bootID names the machine's boot; empty where the system has no name for it.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	id := strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")
	if len(id) != 32 {
		return ""
	}
	return strings.ToLower(id)
}
