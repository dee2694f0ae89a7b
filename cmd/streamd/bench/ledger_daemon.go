package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/httpapi"
)

// running calls do with a daemon that has a model of all blocks, and with the time from its start
// until then.
func (f *ledgerFile) running(ctx context.Context, settings map[string]string, do func(ctx context.Context, d *process, start spent) error) (err error) {
	began := time.Now()
	d, err := f.run.Program.start(f.dir, f.run.Log, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	ctx, fail := d.while(ctx)
	defer fail(nil)
	for {
		status, _, err := d.call(ctx, http.MethodGet, "/v1/model")
		if err == nil {
			break
		}
		if status != http.StatusServiceUnavailable {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return do(ctx, d, spent{time.Since(began), processTime(d.cmd.Process.Pid)})
}

// daemon measures the start of streamd run, and the retirement of single blocks.
func (f *ledgerFile) daemon(ctx context.Context) error {
	return f.running(ctx, f.settings(), func(ctx context.Context, d *process, start spent) error {
		var blocks struct {
			Blocks []struct {
				ID string `json:"id"`
			} `json:"blocks"`
		}
		if _, err := d.ask(ctx, http.MethodGet, "/v1/blocks?limit=100", &blocks); err != nil {
			return err
		}
		var deletes []float64
		longest, err := d.longestTurn(ctx, func() error {
			for _, b := range blocks.Blocks {
				began := time.Now()
				if _, _, err := d.call(ctx, http.MethodDelete, "/v1/blocks/"+url.PathEscape(b.ID)); err != nil {
					return err
				}
				deletes = append(deletes, time.Since(began).Seconds())
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, peak := residentBytes(d.cmd.Process.Pid)
		return f.report("daemon", []spent{start}, func(r *Result) {
			r.set("retire_seconds", median(deletes))
			r.set("longest_turn_seconds", longest)
			r.set("peak_rss_bytes", float64(peak))
		})
	})
}

// replica measures a second streamd run without a file, which begins with a copy of that of the
// first.
func (f *ledgerFile) replica(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp(f.dir, "replica-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f.running(ctx, f.settings(), func(ctx context.Context, d *process, _ spent) error {
		settings := f.settings()
		settings["snapshot.file"] = filepath.Join(dir, "streamd.db")
		settings["kafka.client_id"] = "replica"
		settings["from"] = d.base
		delete(settings, "receipts.key_file") // the log of receipts stays with the first
		return f.running(ctx, settings, func(ctx context.Context, replica *process, start spent) error {
			var models [2]struct {
				Blocks int    `json:"live_blocks"`
				Digest string `json:"state_digest"`
			}
			for i, of := range []*process{d, replica} {
				if _, err := of.ask(ctx, http.MethodGet, "/v1/model", &models[i]); err != nil {
					return err
				}
			}
			if models[0] != models[1] || models[0].Blocks == 0 {
				return fmt.Errorf("the replica's model is %v, and that of the daemon it began with %v", models[1], models[0])
			}
			copied, err := os.Stat(settings["snapshot.file"])
			if err != nil {
				return err
			}
			_, peak := residentBytes(replica.cmd.Process.Pid)
			return f.report("replica", []spent{start}, func(r *Result) {
				r.set("snapshot_bytes", float64(copied.Size()))
				r.set("peak_rss_bytes", float64(peak))
			})
		})
	})
}

// request measures a retirement of many blocks by streamd run. They are those of a range of
// offsets, from the middle on, that are still live.
func (f *ledgerFile) request(ctx context.Context) error {
	return f.running(ctx, f.settings(), func(ctx context.Context, d *process, _ spent) error {
		first := f.Blocks / 2
		if f.key != "" { // the others are gone
			first += f.Together
		}
		args := []string{
			"retire", "--json", "--url", d.base, "--positions", fmt.Sprintf("%s/0/%d-%d", benchTopic, first, first+f.Together-1),
		}
		retire := func(more ...string) (answer httpapi.Retirement, took time.Duration, longest float64, err error) {
			longest, err = d.longestTurn(ctx, func() error {
				var out bytes.Buffer
				began := time.Now()
				if err := f.run.Program.Run(ctx, append(args, more...), &out); err != nil {
					return err
				}
				took = time.Since(began)
				return json.Unmarshal(out.Bytes(), &answer)
			})
			return answer, took, longest, err
		}
		_, dryRun, dryTurn, err := retire("--dry-run")
		if err != nil {
			return err
		}
		answer, took, longest, err := retire()
		if err != nil {
			return err
		}
		_, peak := residentBytes(d.cmd.Process.Pid)
		return f.report("request", []spent{{wall: took}}, func(r *Result) {
			r.set("blocks_together", float64(answer.Blocks))
			r.set("longest_turn_seconds", longest)
			r.set("dry_run_seconds", dryRun.Seconds())
			r.set("dry_run_longest_turn_seconds", dryTurn)
			r.set("peak_rss_bytes", float64(peak))
		})
	})
}

// turns are the turns of a daemon's loop since its start, by the histogram of its metrics.
type turns struct {
	seconds float64             // of all
	upTo    map[float64]float64 // number, by the length in seconds that they do not exceed
}

// turns reads the metrics of a daemon after the turn of its latest answer has ended.
func (d *process) turns(ctx context.Context) (t turns, err error) {
	// The loop answers before the end of a turn. To list blocks takes a later one.
	if _, _, err := d.call(ctx, http.MethodGet, "/v1/blocks?limit=1"); err != nil {
		return t, err
	}
	metrics, err := d.metrics(ctx)
	if err != nil {
		return t, err
	}
	const name = "streamd_loop_turn_seconds"
	t = turns{metrics[name+"_sum"], map[float64]float64{}}
	for key, value := range metrics {
		if bound, ok := strings.CutPrefix(key, name+`_bucket{le="`); ok {
			length, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64)
			if err != nil {
				return t, fmt.Errorf("the daemon's metrics: %s: %w", key, err)
			}
			t.upTo[length] = value
		}
	}
	if len(t.upTo) == 0 {
		return t, errors.New("the daemon's metrics do not say how long the turns of its loop are")
	}
	return t, nil
}

// longestTurn returns a bound, in seconds, of the longest turn of the loop while do runs: the least
// length of the histogram that no turn exceeds, or the time of all turns if that is less. Turns
// with other work count, such as the copy for a solve.
func (d *process) longestTurn(ctx context.Context, do func() error) (float64, error) {
	before, err := d.turns(ctx)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := d.turns(ctx)
	if err != nil {
		return 0, err
	}
	longest := after.seconds - before.seconds
	all := after.upTo[math.Inf(1)] - before.upTo[math.Inf(1)]
	for length, n := range after.upTo {
		if n-before.upTo[length] == all {
			longest = min(longest, length)
		}
	}
	return longest, nil
}
