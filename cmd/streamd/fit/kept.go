package fit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"streamd/cmd/streamd/dataset"
	"streamd/incremental"
)

// Kept are sums that one run leaves for the next, in a file.
type Kept struct {
	Path   string
	Forget bool // take the rows out
}

// keptMagic begins a file of sums. Then come the state's encoding and the SHA-256 of all before it.
const keptMagic = "streamd sums 1\n"

// sumKept adds the rows of the data to the kept sums, or takes them out, and writes the file. Each
// row is a summary of its own. So the sums are a function of the multiset of the rows, and any rows
// can be taken out, in whatever files they came.
func (f *fit) sumKept(ctx context.Context) error {
	k := f.want.Kept
	before, err := k.read(f.data.Features)
	if err != nil {
		return err
	}
	tools := f.tools()
	parts := make([]*incremental.State, len(tools)) // of each worker
	for i := range parts {
		parts[i] = incremental.NewState(f.data.Features)
	}
	err = dataset.Each(ctx, f.data, "learning",
		func(worker int, b *incremental.Block, _ int64) (nothing struct{}, err error) {
			z := &tools[worker]
			b = z.enterAll(b, nil)
			one := make([]int, 1)
			for i := range b.Rows() {
				one[0] = i
				s, err := z.summariser.Summarise(z.gather(b, one))
				if row := (*incremental.RowError)(nil); errors.As(err, &row) {
					row.Row += i
				}
				if err != nil {
					return nothing, err
				}
				parts[worker].Add(s)
			}
			return nothing, nil
		},
		func(struct{}) error { return nil })
	if err != nil {
		return err
	}
	whole := incremental.NewState(f.data.Features)
	if !k.Forget {
		whole.SetSum(append(parts, before))
	} else {
		whole.SetSum(parts)
		rest, ok := before.Less(whole)
		if !ok {
			return fmt.Errorf("%s: not all rows of %s are among those of the sums", k.Path, f.data.Path)
		}
		whole = rest
	}
	f.sums = &sums{whole: whole, dealt: whole}
	return k.write(whole)
}

// read reads the sums. Without the file there are none yet.
func (k *Kept) read(features []string) (*incremental.State, error) {
	text, err := os.ReadFile(k.Path)
	if errors.Is(err, fs.ErrNotExist) && !k.Forget {
		return incremental.NewState(features), nil
	}
	if err != nil {
		return nil, err
	}
	body, ok := bytes.CutPrefix(text, []byte(keptMagic))
	if !ok {
		return nil, fmt.Errorf("%s: not sums that streamd fit --sums has written", k.Path)
	}
	at := len(text) - sha256.Size
	if len(body) < sha256.Size || sha256.Sum256(text[:at]) != [sha256.Size]byte(text[at:]) {
		return nil, fmt.Errorf("%s: damaged: its checksum is wrong", k.Path)
	}
	s, err := incremental.DecodeState(body[:len(body)-sha256.Size])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.Path, err)
	}
	if had := s.Features(); !slices.Equal(had, features) {
		return nil, fmt.Errorf("%s: its features are others: %d, the first %q; the rows have %d, the first %q", k.Path, len(had), first(had), len(features), first(features))
	}
	return s, nil
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// write replaces the file.
func (k *Kept) write(s *incremental.State) error {
	text := s.AppendBinary([]byte(keptMagic))
	sum := sha256.Sum256(text)
	part := k.Path + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(text, sum[:]...)); err == nil {
		err = f.Sync() // the former sums are gone with the rename
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, k.Path)
	}
	if err != nil {
		os.Remove(part)
	}
	return err
}
