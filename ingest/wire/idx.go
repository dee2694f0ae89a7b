package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// idxBytes is the type of the numbers of an idx file: unsigned bytes.
const idxBytes = 0x08

// opensIDX reports whether a file opens like one of MNIST's format: two zeros, the type of the
// numbers, and how many sizes follow.
func opensIDX(head []byte) bool {
	return len(head) >= 4 && head[0] == 0 && head[1] == 0 && head[2] >= idxBytes && head[2] <= 0x0e && head[3] > 0
}

// idxSizes reads the head of an idx file: the number of its rows, and of numbers in a row.
func idxSizes(in io.Reader, limits Limits) (rows, width int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || !opensIDX(head[:]) {
		return 0, 0, errors.New("it is not an idx file")
	}
	if head[2] != idxBytes {
		return 0, 0, fmt.Errorf("an idx file of numbers of type 0x%02x: want unsigned bytes, 0x%02x", head[2], idxBytes)
	}
	width = 1
	for i := range head[3] {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return 0, 0, errors.New("the idx file is truncated in its head")
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if i == 0 {
			rows = n
		} else if width *= n; width < 1 || width > limits.Features {
			return 0, 0, fmt.Errorf("an idx file of rows that are empty or have more than %d numbers, the limit", limits.Features)
		}
	}
	return rows, width, nil
}

// idxText reads the images and the labels of two idx files as the lines of CSV, the label first.
type idxText struct {
	images, labels *bufio.Reader
	rows, row      int
	pixels         []byte // of a row
	line, rest     []byte // the line of a row, and what is not read of it
}

// idxLabels is the file of the labels of a file of images: train-labels-idx1-ubyte.gz for
// train-images-idx3-ubyte.gz.
func idxLabels(path string) (string, error) {
	folder, name := filepath.Split(path)
	if !strings.Contains(name, "images") {
		return "", errors.New(`an idx file has no labels: want two files, such as train-images-idx3-ubyte and train-labels-idx1-ubyte, and the name of the one with "images"`)
	}
	return folder + strings.NewReplacer("images", "labels", "idx3", "idx1").Replace(name), nil
}

// newIDXText opens the file of the labels that belongs to the images in path.
func newIDXText(path string, images *bufio.Reader, limits Limits) (*idxText, io.Closer, error) {
	rows, width, err := idxSizes(images, limits)
	if err != nil {
		return nil, nil, err
	}
	beside, err := idxLabels(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Open(beside)
	if err != nil {
		return nil, nil, fmt.Errorf("the labels of the images: %w", err)
	}
	labels, err := Unzipped(file)
	if err == nil {
		var labelled, each int
		switch labelled, each, err = idxSizes(labels, limits); {
		case err != nil:
		case each != 1:
			err = fmt.Errorf("%d numbers for a label", each)
		case labelled != rows:
			err = fmt.Errorf("%d labels for %d images", labelled, rows)
		}
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("the labels in %s: %w", beside, err)
	}
	return &idxText{images: images, labels: labels, rows: rows, pixels: make([]byte, width)}, file, nil
}

// Read implements io.Reader.
func (x *idxText) Read(p []byte) (int, error) {
	if len(x.rest) == 0 {
		if err := x.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, x.rest)
	x.rest = x.rest[n:]
	return n, nil
}

// next writes the line of the next row.
func (x *idxText) next() error {
	if x.row == x.rows {
		for _, in := range []*bufio.Reader{x.images, x.labels} {
			if _, err := in.ReadByte(); err != io.EOF {
				return fmt.Errorf("there is more behind the %d rows that the idx file says it has", x.rows)
			}
		}
		return io.EOF
	}
	label, err := x.labels.ReadByte()
	if err == nil {
		_, err = io.ReadFull(x.images, x.pixels)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("the idx file is truncated: it has %d of %d rows", x.row, x.rows)
	}
	if err != nil {
		return err
	}
	x.line = strconv.AppendUint(x.line[:0], uint64(label), 10)
	for _, pixel := range x.pixels {
		x.line = strconv.AppendUint(append(x.line, ','), uint64(pixel), 10)
	}
	x.line = append(x.line, '\n')
	x.row, x.rest = x.row+1, x.line
	return nil
}
