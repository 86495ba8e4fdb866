package results

import "strings"

// Format is a way to write results.
type Format string

// The formats of -o.
const (
	Text  Format = "text"
	JSON  Format = "json"
	JSONL Format = "jsonl"
	CSV   Format = "csv"
	None  Format = "none"
)

// ParseFormat reads text, json, jsonl, csv or none.
func ParseFormat(s string) (Format, error) {
	for _, f := range []Format{Text, JSON, JSONL, CSV, None} {
		if strings.EqualFold(s, string(f)) {
			return f, nil
		}
	}
	return "", Usage("output", s, "not a format; use text, json, jsonl, csv or none")
}
