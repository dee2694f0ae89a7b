//go:build !production

package main

import (
	"bytes"
	"cmp"
	"os"
	"reflect"
	"strings"
	"testing"

	"streamd/cmd/streamd/reproduce"
)

// realBroker is the broker in STREAMD_TEST_BROKERS, or "". STREAMD_REQUIRE_BROKER demands one.
func realBroker(t *testing.T) string {
	t.Helper()
	broker := os.Getenv("STREAMD_TEST_BROKERS")
	if broker == "" && os.Getenv("STREAMD_REQUIRE_BROKER") != "" {
		t.Fatal("STREAMD_REQUIRE_BROKER is set, but STREAMD_TEST_BROKERS names no broker")
	}
	return broker
}

// The daemon behind Kafka, which retires a day for each one that comes, has the planes of sums
// that are added and subtracted: all figures are the same, and the angles rise. The broker is a
// real one where STREAMD_TEST_BROKERS names it.
func TestReproduceThroughKafka(t *testing.T) {
	brokers := cmp.Or(realBroker(t), "embedded")
	args := []string{"reproduce", "fig-2.7", "--day-rows", "4000", "--check", "--json"}
	var want reproduce.Report
	reported(t, &want, args...)
	for _, partitions := range []string{"1", "3"} {
		var got reproduce.Report
		reported(t, &got, append(args, "--brokers", brokers, "--partitions", partitions)...)
		last := &got.Results[len(got.Results)-2]
		if !strings.Contains(last.Remark, "the 31 planes are those of a daemon") {
			t.Errorf("the report does not say that it went through Kafka: %+v", last)
		}
		last.Remark = ""
		if len(got.Results) != 8 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s partitions: %+v, in process %+v", partitions, got, want)
		}
	}
	for _, args := range [][]string{
		{"reproduce", "spiral", "--brokers", "embedded"},
		{"reproduce", "fig-2.7", "--brokers", "embedded", "--partitions", "0"},
		{"reproduce", "fig-2.7", "--day-rows", "999"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), args, nil, strings.NewReader(""), &out, t.Output()); err == nil || !strings.Contains(err.Error(), args[2]) && !strings.Contains(err.Error(), args[len(args)-2]) {
			t.Errorf("streamd %q: %v", args, err)
		}
	}
}
