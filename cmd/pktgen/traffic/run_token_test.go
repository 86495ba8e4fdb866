package traffic

import (
	"errors"
	"testing"
)

func TestTokenReadsBack(t *testing.T) {
	for _, want := range []Token{
		{RunID: 1, StartNS: 0, Flows: 1},
		{RunID: ^uint64(0), StartNS: 1 << 60, Boot: "0123456789abcdef0123456789abcdef", Flows: MaxFlows},
		NewToken(12345, 7),
	} {
		got, err := ParseToken(want.String())
		if err != nil || got != want {
			t.Errorf("%s reads back as %+v, %v", want, got, err)
		}
	}
}

func TestTokensThatAreNone(t *testing.T) {
	for _, s := range []string{
		"", "1", "2.1.1.-.1", "1.x.1.-.1", "1.1.-1.-.1", "1.1.1.abc.1", "1.1.1.-.0", "1.1.1.-.16777217", "1.1.1.-.1.1",
		"1.1.1.0123456789abcdef0123456789abcdeg.1",
	} {
		var u *UsageError
		if _, err := ParseToken(s); !errors.As(err, &u) {
			t.Errorf("%q: %v, want a usage error", s, err)
		}
	}
}

func TestSameClockNeedsStartAndBoot(t *testing.T) {
	here := NewToken(5, 1)
	if bootID() != "" && !here.SameClock() {
		t.Error("this boot's own token is not of its clock")
	}
	here.StartNS = 0
	if here.SameClock() {
		t.Error("no start, but one clock")
	}
	there := Token{StartNS: 5, Boot: "0123456789abcdef0123456789abcdef", Flows: 1}
	if there.SameClock() || (Token{StartNS: 5, Flows: 1}).SameClock() {
		t.Error("another boot, but one clock")
	}
}
