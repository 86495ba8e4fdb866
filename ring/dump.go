package ring

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Dump writes memory in the layout in which libmlx5 shows WQEs and error CQEs:
// four big-endian 32-bit words a line. Bytes that do not fill a word are
// written as they are.
func Dump(w io.Writer, b []byte) error {
	line := make([]byte, 0, 36)
	for len(b) > 0 {
		line = line[:0]
		for i := 0; i < 4 && len(b) > 0; i++ {
			n := min(4, len(b))
			if i > 0 {
				line = append(line, ' ')
			}
			line = hex.AppendEncode(line, b[:n])
			b = b[n:]
		}
		line = append(line, '\n')
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("ring: dump: %w", err)
		}
	}
	return nil
}

// ParseDump reads what Dump wrote. Empty lines and lines that begin with # are
// skipped.
func ParseDump(r io.Reader) ([]byte, error) {
	var out []byte
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
		if err != nil {
			return nil, fmt.Errorf("ring: dump line %d: %w", n, err)
		}
		out = append(out, b...)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("ring: dump: %w", err)
	}
	return out, nil
}

// Explain writes one line that says what a send WQE is, then its dump, for
// error messages and tests. v is what was decoded from w.
func Explain(out io.Writer, w []Block, v *SendWQE) error {
	if _, err := fmt.Fprintf(out, "wqe %d: %v ds %d", v.Index, v.Opcode, v.DS); err != nil {
		return fmt.Errorf("ring: explain: %w", err)
	}
	var err error
	if v.Rule != RuleNone {
		_, err = fmt.Fprintf(out, " refused by rule %v: %v\n", v.Rule, v.Syndrome)
	} else {
		_, err = fmt.Fprintf(out, " signaled %t bytes %d pointers %d\n", v.Signaled, v.Bytes, v.NSeg)
	}
	if err != nil {
		return fmt.Errorf("ring: explain: %w", err)
	}
	n := min(int(v.DS)*DSBytes, len(w)*BlockBytes)
	return Dump(out, Flatten(w)[:n])
}
