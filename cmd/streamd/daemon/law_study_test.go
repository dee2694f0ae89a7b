package daemon

import (
	"maps"
	"path/filepath"
	"testing"
	"time"
)

// Studies of the live sets of random histories: with rows without labels, of one class, of weight 0
// and in small blocks, as they come and as they go. No study panics.
func TestStudiesOfHistories(t *testing.T) {
	refine := []string{"none", "line", "full", "logistic", "hinge", "sparse", "auto", "unlabelled"}
	studies, models := 0, 0
	for seed := range uint64(60) {
		h := newHistory(seed)
		flags := maps.Clone(h.flags)
		delete(flags, "retire.topic")
		maps.Copy(flags, map[string]string{
			"model.nu": "auto", "model.refine": refine[h.r.IntN(len(refine))], "model.standardise": "auto", "model.balanced": "auto",
			"snapshot.file": filepath.Join(t.TempDir(), "s"), "model.folds": "3", "sample.rows": []string{"3", "40"}[h.r.IntN(2)],
		})
		if flags["model.refine"] == "unlabelled" {
			flags["blocks.unlabelled"] = "keep"
		}
		o := h.begin(t, flags, false)
		for range 4 {
			for partition := range h.log {
				h.read(o, partition, 1+h.r.IntN(12))
			}
			o.studying.beginStudy(time.Now())
			o.studying.running.await()
			if len(o.jobs.failed) > 0 {
				t.Fatalf("seed %d, %v: %v", seed, flags, o.jobs.failed)
			}
			studies++
			if s := o.publisher.study; s != nil && s.served.Tuning != nil {
				models++
			}
		}
	}
	if models == 0 || models == studies {
		t.Errorf("ν was chosen in %d of %d studies", models, studies)
	}
}
