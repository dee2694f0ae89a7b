package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestConfigReportsAllProblems(t *testing.T) {
	_, err := NewConsumer(Config{
		Cluster:        Cluster{Brokers: []string{"one", "two:http", ":9092"}},
		Topic:          "a b",
		Start:          7,
		OnGap:          -1,
		Fetching:       Fetching{MaxWait: time.Hour, FetchBytes: -1, MaxMessageBytes: 1, BufferBytes: -5},
		SessionTimeout: time.Nanosecond,
	}, nil, zerolog.Nop())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`"one" is not host:port`, `"two:http"`, `":9092"`, `"a b" is not a legal name`, "no group",
		"start 7", "on gap -1", "max wait", "fetch bytes", "max message bytes", "buffer bytes", "session timeout",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s", want)
		}
	}
	if strings.Contains(err.Error(), "rebalance timeout") {
		t.Error("a default is reported")
	}
	if _, err := NewConsumer(Config{Cluster: Cluster{Brokers: []string{"h:1", "[::1]:9092"}}, Topic: "t", Group: "g"}, nil, zerolog.Nop()); err != nil {
		t.Error(err)
	}
	if _, err := NewDeadLetters(DeadLetterConfig{Cluster: Cluster{Brokers: []string{"h:1"}}, Source: "t", Topic: "t"}, zerolog.Nop()); err == nil {
		t.Error("dead letters may go to where they come from")
	}
}

func TestDoubleReleasePanics(t *testing.T) {
	b := &Batch{names: new(interner)}
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.Release()
}
