package main

import (
	"bytes"
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
// its own. The Mushroom set is left out: none of its codings gives the
// published 81 %, all give more. Galaxy Dim is not to be had.
func TestPublished(t *testing.T) {
	if *dataFolder == "" {
		t.Skip("the data sets are not part of the project: make published DATA=FOLDER")
	}
	// The thesis has one division into folds, we have the mean of several.
	const tolerance, seeds = 1.5, 5
	for _, c := range []struct {
		file, test string
		published  float64 // percent
		flags      []string
	}{
		{"wpbc60", "", 68.5, []string{"--standardise", "--nu", "0.03125"}},
		{"ionosphere", "", 87.3, []string{"--standardise", "--nu", "0.00390625"}},
		{"cleveland", "", 85.9, []string{"--nu", "0.0625"}},
		{"pima", "", 77.5, []string{"--nu", "4"}},
		{"bupa", "", 69.4, []string{"--nu", "8"}},
		{"adult-a9a-train", "adult-a9a-test", 84.56, []string{"--nu", "1"}},
	} {
		var sum float64
		runs := 1
		args := append([]string{"fit", dataFile(t, c.file), "--label", "first", "--json"}, c.flags...)
		if c.test != "" {
			args = append(args, "--test", dataFile(t, c.test))
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
		t.Logf("%-16s published %5.2f %%, ours %5.2f %%  %v", c.file, c.published, ours, c.flags)
		if math.Abs(ours-c.published) > tolerance {
			t.Errorf("%s: %.2f %%, published are %.2f %%", c.file, ours, c.published)
		}
	}
}

func dataFile(t *testing.T, name string) string {
	path := filepath.Join(*dataFolder, name+".csv.gz")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}
