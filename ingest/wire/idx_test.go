package wire_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// idx is a file of numbers of a type.
func idx(kind byte, numbers []byte, sizes ...uint32) []byte {
	b := []byte{0, 0, kind, byte(len(sizes))}
	for _, n := range sizes {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, numbers...)
}

// rowsOf is the labels and numbers of a block.
func rowsOf(b *incremental.Block) (text string) {
	for i, code := range b.Codes {
		text += b.Classes[code]
		for _, c := range b.Columns {
			text += fmt.Sprint(" ", c.At(i))
		}
		text += "\n"
	}
	return text
}

// Images and labels are the rows of CSV of the same numbers, plain and compressed, and whatever the
// options say of labels and headers, which CSV needs to be told.
func TestIDX(t *testing.T) {
	images, labels := idx(8, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 254, 255}, 2, 3, 2), idx(8, []byte{7, 0}, 2)
	text := writeFile(t, "rows.csv", []byte("7,0,1,2,3,4,5\n0,6,7,8,9,254,255\n"))
	for _, names := range [][2]string{
		{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}, {"images.gz", "labels.gz"}, {"t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"},
	} {
		for _, opts := range []wire.Options{{}, {Label: "last"}, {Header: wire.HeaderPresent}} {
			path, beside := writeFile(t, names[0], images), writeFile(t, names[1], labels)
			if err := os.Rename(beside, filepath.Join(filepath.Dir(path), names[1])); err != nil {
				t.Fatal(err)
			}
			for _, rows := range []int{1, 2, 10} {
				want, err := readAll(text, wire.Options{}, rows)
				if err != nil {
					t.Fatal(err)
				}
				got, err := readAll(path, opts, rows)
				if err != nil {
					t.Fatalf("%s, %+v: %v", names[0], opts, err)
				}
				if rowsOf(got) != rowsOf(want) {
					t.Errorf("%s, %+v: %s, not %s", names[0], opts, rowsOf(got), rowsOf(want))
				}
			}
		}
	}
}

func TestIDXRefused(t *testing.T) {
	images, labels := idx(8, []byte{1, 2, 3, 4}, 2, 2), idx(8, []byte{0, 1}, 2)
	for reason, files := range map[string][2][]byte{
		"want unsigned bytes":              {idx(0x0d, make([]byte, 16), 2, 2), labels},
		"truncated in its head":            {images[:9], labels},
		"truncated: it has 1 of 2 rows":    {images[:len(images)-1], labels},
		"empty or have more than 4096":     {idx(8, nil, 2, 1<<31, 1<<31), labels},
		"rows that are empty":              {idx(8, nil, 2, 0), labels},
		"there is more behind the 2 rows":  {append(images[:len(images):len(images)], 0), labels},
		"3 labels for 2 images":            {images, idx(8, []byte{0, 1, 2}, 3)},
		"2 numbers for a label":            {images, idx(8, []byte{0, 1, 2, 3}, 2, 2)},
		"it is not an idx file":            {images, []byte("0\n1\n")},
		"truncated: it has 1 of 2 rows, 2": {images, labels[:len(labels)-1]},
		"no rows":                          {idx(8, nil, 0, 2), idx(8, nil, 0)},
	} {
		path, beside := writeFile(t, "images", files[0]), writeFile(t, "labels", files[1])
		if err := os.Rename(beside, filepath.Join(filepath.Dir(path), "labels")); err != nil {
			t.Fatal(err)
		}
		reason, _, _ = strings.Cut(reason, ", 2")
		if _, err := readAll(path, wire.Options{}, 10); err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), path) {
			t.Errorf("want %q, got %v", reason, err)
		}
	}
	if _, err := readAll(writeFile(t, "images", images), wire.Options{}, 10); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "labels of the images") {
		t.Errorf("without labels: %v", err)
	}
	if _, err := readAll(writeFile(t, "labels", labels), wire.Options{}, 10); err == nil || !strings.Contains(err.Error(), "want two files") {
		t.Errorf("labels alone: %v", err)
	}
}
