package summarise

import (
	"testing"

	"streamd/cmd/streamd/stage/stagetest"
)

// The alerts name series that a stage has. Package httpapi looks at all else in them.
func TestAlertsNameSeries(t *testing.T) {
	stagetest.CheckAlerts(t, collector{}, "streamd_summarise_", 3)
}
