package traffic

import (
	"bufio"
	"errors"
	"os"

	"github.com/bluering/bluering/cmd/internal/results"
)

// recording is the pcapng file of --tap.
type recording struct {
	*bufio.Writer
	file *os.File
}

// record makes the file, so that a path that cannot be written is known before the first frame.
func record(path string) (*recording, error) {
	if _, err := results.OpenOutput("tap", path); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, results.Usage("tap", path, "cannot be written: "+err.Error())
	}
	return &recording{bufio.NewWriterSize(f, 1<<20), f}, nil
}

// Close ends the file. The devices that write it have been closed before.
func (r *recording) Close() error { return errors.Join(r.Flush(), r.file.Close()) }

// discard removes the file of a run that did not start, but never a device or a pipe.
func (r *recording) discard() {
	if info, err := os.Lstat(r.file.Name()); err == nil && info.Mode().IsRegular() {
		os.Remove(r.file.Name())
	}
}
