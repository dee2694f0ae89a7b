package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

var dataFolder = flag.String("data", "", "folder of the data sets of TestPublished")

// TestPublished compares accuracies with those that Fung 2003 has for the
// linear PSVM, in tables 2.1 (Adult) and 2.3 (ten-fold). ν and the scaling were
// chosen by ten-fold accuracy among ν = 2^-10 … 2^7, as the thesis does not say
// its own; of table 2.1 these are the sizes at hand. The Mushroom set is left out: none of its codings gives the
// published 81 %, all give more. Galaxy Dim is not to be had.
func TestPublished(t *testing.T) {
	if *dataFolder == "" {
		t.Skip("the data sets are not part of the project: make published DATA=FOLDER")
	}
	// The thesis has one division into folds, we have the mean of several.
	const tolerance, seeds = 1.5, 5
	adult := adultSubsets(t)
	for _, c := range []struct {
		file, test string  // paths
		published  float64 // percent
		flags      []string
	}{
		{dataFile(t, "wpbc60"), "", 68.5, []string{"--standardise", "--nu", "0.03125"}},
		{dataFile(t, "ionosphere"), "", 87.3, []string{"--standardise", "--nu", "0.00390625"}},
		{dataFile(t, "cleveland"), "", 85.9, []string{"--nu", "0.0625"}},
		{dataFile(t, "pima"), "", 77.5, []string{"--nu", "4"}},
		{dataFile(t, "bupa"), "", 69.4, []string{"--nu", "8"}},
		{adult["a1a"], adult["a1a.t"], 84.00, []string{"--nu", "0.01"}},
		{adult["a6a"], adult["a6a.t"], 84.48, []string{"--nu", "0.01"}},
		{adult["a8a"], adult["a8a.t"], 85.16, []string{"--nu", "0.01"}},
		{dataFile(t, "adult-a9a-train"), dataFile(t, "adult-a9a-test"), 84.56, []string{"--nu", "0.01"}},
	} {
		var sum float64
		runs := 1
		args := append([]string{"fit", c.file, "--label", "first", "--json"}, c.flags...)
		if c.test != "" {
			args = append(args, "--test", c.test)
		} else {
			runs = seeds
			args = append(args, "--folds", "10")
		}
		for seed := range runs {
			var out bytes.Buffer
			if err := run(context.Background(), append(args, "--seed", fmt.Sprint(seed+1)), nil, nil, &out, io.Discard); err != nil {
				t.Fatal(err)
			}
			var report struct {
				TestAccuracy float64 `json:"test_accuracy"`
			}
			if err := json.Unmarshal(out.Bytes(), &report); err != nil {
				t.Fatal(err)
			}
			sum += 100 * report.TestAccuracy
		}
		ours := sum / float64(runs)
		t.Logf("%-24s published %5.2f %%, ours %5.2f %%  %v", filepath.Base(c.file), c.published, ours, c.flags)
		if math.Abs(ours-c.published) > tolerance {
			t.Errorf("%s: %.2f %%, published are %.2f %%", c.file, ours, c.published)
		}
	}
}

// adultSubsets writes the smaller Adult sets of table 2.1 that are at hand, with
// the rest of the 32,561 rows as the test set of each, and gives their paths.
func adultSubsets(t *testing.T) map[string]string {
	var splits map[string]struct{ Train []int }
	if err := json.Unmarshal(unzip(t, filepath.Join(*dataFolder, "adult.splits.json.gz")), &splits); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(unzip(t, dataFile(t, "adult-a9a-train")), []byte("\n"))
	lines = lines[:32561]
	paths := map[string]string{}
	for name, split := range splits {
		train := make(map[int]bool, len(split.Train))
		for _, row := range split.Train {
			train[row] = true
		}
		var parts [2][]byte // to learn from, and the rest
		for i, line := range lines {
			part := &parts[1]
			if train[i] {
				part = &parts[0]
			}
			*part = append(*part, line...)
		}
		for i, suffix := range []string{"", ".t"} {
			path := filepath.Join(t.TempDir(), name+suffix+".csv")
			if err := os.WriteFile(path, parts[i], 0o600); err != nil {
				t.Fatal(err)
			}
			paths[name+suffix] = path
		}
	}
	return paths
}

func unzip(t *testing.T, path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func dataFile(t *testing.T, name string) string {
	path := filepath.Join(*dataFolder, name+".csv.gz")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}
