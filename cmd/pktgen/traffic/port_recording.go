package traffic

import (
	"errors"
	"net/url"
	"os"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// recordingPort takes "pcap:FILE?..." apart; ok is false for other ports. What
// cannot be parsed is left to the opening, which says so.
func recordingPort(uri string) (path, mode string, ok bool) {
	rest, ok := strings.CutPrefix(uri, "pcap:")
	path, query, _ := strings.Cut(rest, "?")
	params, err := url.ParseQuery(query)
	return path, params.Get("mode"), ok && err == nil && path != ""
}

// RecordingOf is the file of a port "pcap:FILE", empty for other ports.
func RecordingOf(uri string) string {
	path, _, ok := recordingPort(uri)
	if !ok {
		return ""
	}
	return path
}

// asReceiver is the device string of a port that receives: a recording is read,
// never written, which would empty it.
func asReceiver(uri string) (string, error) {
	_, mode, ok := recordingPort(uri)
	switch {
	case !ok || mode == "read":
		return uri, nil
	case mode != "":
		return "", results.Usage("port", uri, "a receiver reads a recording; use it without mode="+mode)
	case strings.Contains(uri, "?"):
		return uri + "&mode=read", nil
	}
	return uri + "?mode=read", nil
}

// checkSender refuses a recording that is only to be read.
func checkSender(uri string) error {
	if _, mode, ok := recordingPort(uri); ok && mode == "read" {
		return results.Usage("port", uri, "a sender writes a recording; use it without mode=read, or with --rx")
	}
	return nil
}

// probeRecording tells what a recording that is to be written is. It checks that
// it can be, and leaves the file as it is or not there.
func probeRecording(uri, path string) (*PortFacts, error) {
	if _, err := results.OpenOutput("port", path); err != nil {
		var u *UsageError
		if errors.As(err, &u) {
			u.Value = uri
		}
		return nil, err
	}
	dev, facts, err := openDevice(uri, "pcap:"+os.DevNull+strings.TrimPrefix(uri, "pcap:"+path), nil, nil)
	if err != nil {
		return nil, err
	}
	facts.Name = "pcap:" + path
	return facts, dev.Close()
}
