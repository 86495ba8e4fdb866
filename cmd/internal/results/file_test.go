package results

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOutputFileAppearsWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.json")
	o, err := OpenOutput("report", path)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("before the commit there is %v", left)
	}
	if err := o.Commit([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "{}" {
		t.Errorf("content %q", got)
	}
	o2, err := OpenOutput("report", path) // an older report stays until the new one is whole
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "{}" {
		t.Errorf("the older content is %q", got)
	}
	if err := o2.Commit([]byte("[]")); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	var u *UsageError
	if _, err := OpenOutput("report", filepath.Join(dir, "no", "r.json")); !errors.As(err, &u) {
		t.Errorf("a missing directory: %v", err)
	}
	if _, err := OpenOutput("report", dir); !errors.As(err, &u) {
		t.Errorf("a directory: %v", err)
	}
	if o, err := OpenOutput("report", os.DevNull); err != nil || o.Commit([]byte("x")) != nil {
		t.Errorf("a device is written in place: %v", err)
	}
}

func TestOutputsAreThoseThatAreWanted(t *testing.T) {
	dir := t.TempDir()
	report, hdr := filepath.Join(dir, "r.json"), filepath.Join(dir, "h.hlog")
	log := func() []byte { return []byte("#\n") }
	for _, tc := range []struct{ report, hdr, want string }{{"", "", ""}, {report, "", "7\n"}, {"", hdr, "#\n"}, {report, hdr, "7\n#\n"}} {
		o, err := OpenOutputs(tc.report, tc.hdr)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Commit(7, log); err != nil {
			t.Error(err)
		}
		got := ""
		for _, path := range []string{report, hdr} {
			content, _ := os.ReadFile(path)
			got += string(content)
			os.Remove(path)
		}
		if got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
	var u *UsageError
	for _, tc := range [][2]string{{dir, ""}, {"", dir}} {
		if _, err := OpenOutputs(tc[0], tc[1]); !errors.As(err, &u) {
			t.Errorf("%q: %v", tc, err)
		}
	}
}
