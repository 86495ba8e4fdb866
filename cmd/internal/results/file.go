package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// OutputFile is a file that appears whole or not at all: it is written beside
// its place, synced and renamed. Between OpenOutput and Commit nothing of it is
// on the disk, so that a process killed in between leaves nothing.
type OutputFile struct {
	thing, path string
	direct      bool // a device, or a file this process has open already: written in place
}

// Outputs are the files that a run's results go to. Either may be missing.
type Outputs struct{ report, hdr *OutputFile }

// OpenOutputs opens those whose path is not empty; the names are those of their flags.
func OpenOutputs(report, hdr string) (o Outputs, err error) {
	if report != "" {
		if o.report, err = OpenOutput("report", report); err != nil {
			return Outputs{}, err
		}
	}
	if hdr != "" {
		o.hdr, err = OpenOutput("hdr", hdr)
	}
	return o, err
}

// Commit writes the report as JSON, and the histogram as hdr makes it.
func (o *Outputs) Commit(report any, hdr func() []byte) (err error) {
	if o.report != nil {
		err = o.report.CommitJSON(report)
	}
	if o.hdr != nil {
		err = errors.Join(err, o.hdr.Commit(hdr()))
	}
	return err
}

// OpenOutput checks that path can be written; thing names the flag in errors.
func OpenOutput(thing, path string) (*OutputFile, error) {
	o := &OutputFile{thing: thing, path: path}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return nil, Usage(thing, path, "is a directory; use a file name")
	}
	stream := err == nil && isStream(path, info.Mode())
	if err == nil && !info.Mode().IsRegular() && !stream {
		return nil, Usage(thing, path, "is a pipe, a socket or a disk; use a file name, /dev/null or /dev/stdout")
	}
	var f *os.File
	if o.direct = stream; stream {
		f, err = os.OpenFile(path, os.O_WRONLY, 0)
	} else {
		if target, lerr := filepath.EvalSymlinks(path); lerr == nil {
			o.path = target // a link stays one
		}
		f, err = o.beside()
	}
	if err != nil {
		why := err
		var pe *os.PathError
		if errors.As(err, &pe) {
			why = pe.Err
		}
		return nil, &UsageError{Thing: thing, Value: path, Hint: fmt.Sprintf("cannot write there (%v); use a file in an existing, writable directory", why), Cause: err}
	}
	_ = f.Close()
	if !o.direct {
		err = os.Remove(f.Name())
	}
	return o, err
}

// writeInPlace adds to what is there: standard output may be a file that has the results.
func (o *OutputFile) writeInPlace(content []byte) error {
	f, err := os.OpenFile(o.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// isStream reports whether what is no file may be written all the same: a
// terminal, /dev/null and their like, and what this process has open already. A
// pipe by its name would make it wait for a reader.
func isStream(path string, m os.FileMode) bool {
	if m&os.ModeCharDevice != 0 {
		return true
	}
	path = filepath.Clean(path)
	return path == "/dev/stdout" || path == "/dev/stderr" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// CheckOutputs refuses one file for two purposes: pairs of a flag and its path,
// which may be empty. Devices may be shared.
func CheckOutputs(list ...[2]string) error {
	for i, a := range list {
		for _, b := range list[:i] {
			if a[1] != "" && b[1] != "" && sameFile(a[1], b[1]) {
				return Usage(a[0], a[1], "is the file of "+b[0]+", too; use two files")
			}
		}
	}
	return nil
}

// sameFile reports whether two paths name one file, which need not be there yet.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(infoA, infoB) && infoA.Mode().IsRegular()
	}
	if errA == nil || errB == nil || filepath.Base(a) != filepath.Base(b) {
		return false
	}
	infoA, errA = os.Stat(filepath.Dir(a))
	infoB, errB = os.Stat(filepath.Dir(b))
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// beside makes a temporary file in the directory that the content goes to.
func (o *OutputFile) beside() (*os.File, error) {
	return os.CreateTemp(filepath.Dir(o.path), "."+filepath.Base(o.path)+".*")
}

// Commit writes the whole content and puts the file in place.
func (o *OutputFile) Commit(content []byte) error {
	if err := o.commit(content); err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err // its path is this, or a temporary one
		}
		return fmt.Errorf("write %s %s: %w", o.thing, o.path, err)
	}
	return nil
}

// CommitJSON writes a report.
func (o *OutputFile) CommitJSON(report any) error {
	raw, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return o.Commit(append(raw, '\n'))
}

func (o *OutputFile) commit(content []byte) error {
	if o.direct {
		return o.writeInPlace(content)
	}
	f, err := o.beside()
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), o.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if dir, err := os.Open(filepath.Dir(o.path)); err == nil { // the rename itself; not every file system can
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}
