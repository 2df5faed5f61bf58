package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fileSink appends records to a file, one JSON object a line (see
// [DecodeLine]), and syncs it before Put returns. Sinks of the same path share
// the open file; a second process must not write to it, which Options.OpenFile
// sees to.
//
// Every failure is retriable: a full disk can be cleared. The records of a Put
// that failed are written again by the next, so the file may hold some twice.
type fileSink struct {
	path string
	open func(path string) (SyncWriter, error)
	file *lineFile
	buf  bytes.Buffer
}

var _ Sink = (*fileSink)(nil)

// newFileSink returns a sink that appends to path, opened by open.
func newFileSink(path string, open func(path string) (SyncWriter, error)) *fileSink {
	return &fileSink{path: path, open: open}
}

// Open opens the file, so that a path that can't be written is told at once.
func (s *fileSink) Open(context.Context) error {
	if s.open == nil {
		return errors.New("open file sink: no Options.OpenFile given")
	}
	s.file = lineFiles.take(s.path, s.open)
	if err := s.file.append(nil); err != nil {
		err = errors.Join(err, lineFiles.release(s.file))
		s.file = nil
		return &hinted{fmt.Errorf("open file sink: %w", err), "see that the folder of sink.file.path exists and can be written"}
	}
	return nil
}

// Put implements [Sink].
func (s *fileSink) Put(ctx context.Context, recs []*kgo.Record) error {
	if ctx.Err() != nil {
		return Retriable(context.Cause(ctx))
	}
	s.buf.Reset()
	for _, rec := range recs {
		if err := appendLine(&s.buf, rec); err != nil {
			return fmt.Errorf("write line: %w", err)
		}
	}
	if err := s.file.append(s.buf.Bytes()); err != nil {
		return Retriable(err)
	}
	return nil
}

// Close closes the file with the last sink that uses it.
func (s *fileSink) Close(context.Context) error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return lineFiles.release(file)
}

// lineFile is a file of lines that several sinks append to. It never puts the
// start of a line behind a piece of another one.
type lineFile struct {
	path  string
	open  func(path string) (SyncWriter, error)
	users int // of lineFiles

	mu sync.Mutex
	w  SyncWriter // nil: to be opened
	// lead comes before the next line: what is missing of a line that was cut
	// off.
	lead []byte
}

// append writes whole lines and returns when they are on stable storage.
func (f *lineFile) append(lines []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.w == nil {
		w, err := f.open(f.path)
		if err != nil {
			return fmt.Errorf("open %s: %w", f.path, err)
		}
		f.w = w
		if f.lead == nil && !endsLine(w) {
			f.lead = []byte{'\n'}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	data := lines
	if len(f.lead) > 0 {
		data = slices.Concat(f.lead, lines)
	}
	n, err := f.w.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	if err != nil {
		f.lead = restOfLine(data, n, f.lead)
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	f.lead = nil
	if err := f.w.Sync(); err != nil {
		// The system may have dropped what it could not write, and call the
		// next sync a success. A file opened anew is looked at again.
		err = errors.Join(err, f.w.Close())
		f.w = nil
		return fmt.Errorf("sync %s: %w", f.path, err)
	}
	return nil
}

// restOfLine is what is missing of the line that ends in data at n. Nothing is
// written of it when n is within the line's lead.
func restOfLine(data []byte, n int, lead []byte) []byte {
	switch {
	case n < len(lead):
		return bytes.Clone(lead[n:])
	case n == 0 || data[n-1] == '\n':
		return nil
	}
	end := bytes.IndexByte(data[n:], '\n')
	return bytes.Clone(data[n : n+end+1])
}

// endsLine reports whether the file is empty or ends with a line end. A writer
// that can't be read counts as one that does not: an empty line does no harm.
func endsLine(w SyncWriter) bool {
	f, ok := w.(interface {
		io.ReaderAt
		Stat() (fs.FileInfo, error)
	})
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	if info.Size() == 0 {
		return true
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return false
	}
	return last[0] == '\n'
}

// lineFiles are the files that sinks of this process have open, by path: the
// lanes of a flow must not cut each other's lines.
var lineFiles = &lineFileSet{files: map[string]*lineFile{}}

type lineFileSet struct {
	mu    sync.Mutex
	files map[string]*lineFile
}

func (s *lineFileSet) take(path string, open func(string) (SyncWriter, error)) *lineFile {
	path = filepath.Clean(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[path]
	if f == nil {
		f = &lineFile{path: path, open: open}
		s.files[path] = f
	}
	f.users++
	return f
}

func (s *lineFileSet) release(f *lineFile) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users--; f.users > 0 {
		return nil
	}
	delete(s.files, f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.w == nil {
		return nil
	}
	if err := f.w.Close(); err != nil {
		return fmt.Errorf("close %s: %w", f.path, err)
	}
	return nil
}
