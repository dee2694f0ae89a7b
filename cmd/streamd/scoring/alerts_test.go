package scoring

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The alerts name series that a stage has. Package httpapi looks at all else in them.
func TestAlertsNameSeries(t *testing.T) {
	text, err := os.ReadFile("../../../config/deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan *prometheus.Desc)
	go func() {
		Collector{}.Describe(found)
		close(found)
	}()
	has, name := map[string]bool{}, regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range found {
		has[name.FindStringSubmatch(d.String())[1]] = true
	}
	names := regexp.MustCompile(`\bstreamd_predict_\w+`).FindAllString(string(text), -1)
	for _, name := range names {
		if !has[name] {
			t.Errorf("there is no series %s", name)
		}
	}
	if len(names) < 2 {
		t.Errorf("the alerts name only %q", names)
	}
}
